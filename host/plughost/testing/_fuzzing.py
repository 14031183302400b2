"""Part of the conformance suite: schemathesis, which makes requests of a description, and checks every answer by it."""

from __future__ import annotations

import json
import subprocess  # nosec B404 - of this Python alone
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from plughost.http._events import MEDIA_TYPE
from plughost.testing._operations import Suite

_PATIENCE: Final = 600
# A precondition that fails is a right answer to a valid request.
_CONFIGURATION: Final = """
hooks = "hooks.py"

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "412", "429", "5xx"]
"""
# A target that is too long is refused by the server (414): the description is of what resources answer.
_HOOKS: Final = """
from urllib.parse import urlencode

import schemathesis


@schemathesis.hook
def filter_case(context, case):
    return len(case.formatted_path + urlencode(case.query or {}, doseq=True)) < 8000
"""


class Fuzzing(Suite):
    """Tests of a plugin's description."""

    def test_every_answer_is_as_described(self, tmp_path: Path) -> None:
        """Whatever schemathesis makes of the description, no operation answers what it doesn't declare."""
        if find_spec("schemathesis") is None or find_spec("plughost_openapi") is None:
            pytest.skip("answers are not compared with the description: install schemathesis and plughost-openapi")
        with self.serving("openapi") as host, host.client() as client:
            for site, view in host.host.view.sites.items():
                if any(owner == self.plugin and group.described for owner, group in view.groups):
                    described = client.get(f"/q/openapi?format=json&site={site}").json()
                    found = _fuzz(described, host.url(site), tmp_path, self.plugin)
                    assert not found, (
                        f"{self.plugin} answers otherwise than it declares; declare it, or mend it:\n{found}"
                    )


def _fuzz(described: dict[str, Any], url: str, folder: Path, plugin: str) -> str:
    """Return what schemathesis finds wrong with a plugin's answers, and nothing where all are as they are described.

    Operations that send events are left out, since their answers have no end.
    """
    document = _exact(described)
    document["paths"] = {
        path: wanted
        for path, operations in document["paths"].items()
        if (wanted := {method: each for method, each in operations.items() if _is_wanted(each, plugin)})
    }
    if not document["paths"]:
        return ""
    (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "schemathesis.toml").write_text(_CONFIGURATION, encoding="utf-8")
    (folder / "hooks.py").write_text(_HOOKS, encoding="utf-8")
    program = Path(sys.executable).with_name("schemathesis")
    command: list[str | Path] = [program, "--config-file", "schemathesis.toml", "run", "openapi.json", "--url", url]
    command += ["--checks", "all", "--max-examples", "3", "--seed", "1", "--phases", "examples,fuzzing"]
    command += ["--suppress-health-check", "all", "--continue-on-failure", "--no-color"]
    done = subprocess.run(  # noqa: S603 - a program of this environment  # nosec B603
        command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE, check=False
    )
    said = done.stdout + done.stderr
    return said if done.returncode or "Tested: 0" in done.stdout else ""


def _is_wanted(operation: Mapping[str, Any], plugin: str) -> bool:
    kinds = {kind for response in operation["responses"].values() for kind in response.get("content", ())}
    return plugin in operation["tags"] and MEDIA_TYPE not in kinds


def _exact(found: Any) -> Any:
    """Return a description with what JSON Schema says of digits only by `multipleOf`, which JavaScript can't check."""
    if isinstance(found, dict):
        exact = {key: _exact(each) for key, each in found.items()}
        if "x-fraction-digits" in exact:
            exact["multipleOf"] = 10 ** -exact["x-fraction-digits"]
        return exact
    return [_exact(each) for each in found] if isinstance(found, list) else found

"""Part of the conformance suite: schemathesis makes requests from the description and checks the responses by it."""

from __future__ import annotations

import json
import re
import subprocess  # nosec B404 - of this Python alone
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from plughost.http._events import MEDIA_TYPE
from plughost.testing._operations import Suite

if TYPE_CHECKING:
    from plughost import SiteView

_TIMEOUT: Final = 600
# A failed precondition is a right response to a valid request.
_EXPECTED: Final = ["2xx", "3xx", "401", "403", "404", "409", "412", "429", "5xx"]
_CONFIGURATION: Final = f"""
hooks = "hooks.py"

[checks.positive_data_acceptance]
expected-statuses = {_EXPECTED}
"""
_STRICTER_OPERATION: Final = """
[[operations]]
include-name = "{name}"
checks.positive_data_acceptance.expected-statuses = {expected}
"""
# The server refuses a target that is too long (414); the description covers only the responses of resources.
_HOOKS: Final = """
from urllib.parse import urlencode

import schemathesis


@schemathesis.hook
def filter_case(context, case):
    return len(case.formatted_path + urlencode(case.query or {}, doseq=True)) < 8000
"""


class FuzzingTests(Suite):
    """Tests of a plugin's description."""

    def test_every_answer_is_as_described(self, tmp_path: Path) -> None:
        """No operation sends a response that it doesn't declare, whatever schemathesis requests."""
        if find_spec("schemathesis") is None or find_spec("plughost_openapi") is None:
            pytest.skip("answers are not compared with the description: install schemathesis and plughost-openapi")
        with self.serving("openapi") as host, host.client() as client, self.clients(host) as client_of:
            for site, view in host.host.view.sites.items():
                if any(owner == self.plugin and group.described for owner, group in view.groups):
                    described = client.get(f"/q/openapi?format=json&site={site}")
                    (tmp_path / "schemathesis.toml").write_text(_configuration(view, self.plugin), encoding="utf-8")
                    document = _of_plugin(described.json(object_hook=_with_multiple_of), self.plugin)
                    headers = dict(set(client_of(site).headers.items()) - set(client.headers.items()))
                    found = _fuzz(document, host.url(site), headers, tmp_path)
                    assert not found, (
                        f"{self.plugin} answers otherwise than it declares; declare it, or mend it:\n{found}"
                    )


def _configuration(view: SiteView, plugin: str) -> str:
    """Let operations that declare the status of invalid input refuse what their schemas allow.

    A schema can't express each rule: that one member must be greater than another, for example.
    """
    return _CONFIGURATION + "".join(
        _STRICTER_OPERATION.format(
            name=f"{method} {re.sub(':[^{}]*}', '}', group.prefix + route.path)}",
            expected=[*_EXPECTED, str(group.errors.validation_status)],
        )
        for owner, group in view.groups
        if owner == plugin
        for route in group.routes
        for method, operation in route.operations.items()
        if group.errors.validation_status in operation.responses
    )


def _of_plugin(document: dict[str, Any], plugin: str) -> dict[str, Any]:
    """Return a description of a plugin's operations, except those that send events: their responses don't end."""
    paths = {
        path: wanted
        for path, operations in document["paths"].items()
        if (wanted := {method: each for method, each in operations.items() if _is_wanted(each, plugin)})
    }
    return {**document, "paths": paths}


def _fuzz(document: dict[str, Any], url: str, headers: Mapping[str, str], folder: Path) -> str:
    """Return the output of schemathesis if responses differ from their description, else nothing."""
    if not document["paths"]:
        return ""
    (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    (folder / "hooks.py").write_text(_HOOKS, encoding="utf-8")
    program = Path(sys.executable).with_name("schemathesis")
    command: list[str | Path] = [program, "--config-file", "schemathesis.toml", "run", "openapi.json", "--url", url]
    command += ["--checks", "all", "--max-examples", "3", "--seed", "1", "--phases", "examples,fuzzing"]
    command += ["--suppress-health-check", "all", "--continue-on-failure", "--no-color"]
    # Title case, since a check of schemathesis leaves out `Authorization` alone, and not `authorization`.
    command += [text for name, value in headers.items() for text in ("--header", f"{name.title()}: {value}")]
    done = subprocess.run(  # noqa: S603 - a program of this environment  # nosec B603
        command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    output = done.stdout + done.stderr
    return output if done.returncode or "Tested: 0" in done.stdout else ""


def _is_wanted(operation: Mapping[str, Any], plugin: str) -> bool:
    kinds = {kind for response in operation["responses"].values() for kind in response.get("content", ())}
    return plugin in operation["tags"] and MEDIA_TYPE not in kinds


def _with_multiple_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Add `multipleOf` for decimal digits, which descriptions leave out since JavaScript can't check it."""
    if "x-fraction-digits" in schema:
        schema["multipleOf"] = 10 ** -schema["x-fraction-digits"]
    return schema

"""Schemathesis sends requests that the description's schemas allow or exclude, and checks every answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.kit import ALL

if TYPE_CHECKING:
    from plughost.testing import RunningHost

# A failed precondition is a correct answer to a valid request.
CONFIGURATION = """
hooks = "hooks.py"

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "412", "429", "5xx"]

[auth.openapi.basic]
username = "admin@example.org"
password = "admin"

[auth.openapi.bearer]
bearer = "{token}"
"""


# Filters values that break only `multipleOf`, which the description omits for the sake of JavaScript, and targets that
# no resource receives, since the server refuses them (414): the description covers only answers of resources.
HOOKS = """
from urllib.parse import urlencode

import schemathesis


@schemathesis.hook
def filter_case(context, case):
    return len(case.formatted_path + urlencode(case.query or {}, doseq=True)) < 8000


@schemathesis.hook
def before_load_schema(context, raw_schema):
    def walk(found):
        if isinstance(found, dict):
            if "x-fraction-digits" in found:
                found["multipleOf"] = 10 ** -found["x-fraction-digits"]
            found = list(found.values())
        for each in found if isinstance(found, list) else ():
            walk(each)

    walk(raw_schema)
"""


def test_every_answer_is_as_described(host: RunningHost, site: str, tmp_path: Path) -> None:
    """With all checks enabled, no answer to any request differs from the description."""
    with host.client("library", auth=("admin@example.org", "admin")) as client:
        token = client.get("/mylibrary/setup/login").text
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION.format(token=token))
    (tmp_path / "hooks.py").write_text(HOOKS)
    command: list[str | Path] = [
        Path(sys.executable).with_name("schemathesis"),
        *("--config-file", configuration),
        *("run", f"{host.url()}/q/openapi?format=json&site={site}", "--url", host.url(site)),
        *(
            "--checks",
            "all",
            "--max-examples",
            "10" if ALL else "3",
            "--seed",
            "1",
            "--continue-on-failure",
            "--no-color",
            "--phases",
            "examples,coverage,fuzzing,stateful" if ALL else "examples,fuzzing",
        ),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tested: 0" not in done.stdout

"""JavaScript tools read the description: ajv, Redocly and Spectral, pinned in node/package.json."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from jsonschema import Draft202012Validator

if TYPE_CHECKING:
    from plughost.testing import RunningHost

NODE: Final = Path(__file__).with_name("node")
Pair = tuple[dict[str, Any], Any, str]

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (NODE / "node_modules").is_dir(),
    reason=f"node and its tools are not tested: run `npm ci --ignore-scripts --prefix {NODE}`",
)


def description_of(host: RunningHost, site: str) -> dict[str, Any]:
    """Return the description of a site."""
    with host.client() as client:
        found: dict[str, Any] = client.get(f"/q/openapi?site={site}&format=json").json()
    return found


def run(*command: str | Path, given: str | None = None) -> str:
    """Run a tool in its configuration's folder; return its output, or fail with that."""
    done = subprocess.run(command, cwd=NODE, input=given, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def examples(found: Any, where: str = "#") -> Iterator[Pair]:
    """Yield each example and default of a description, with its schema."""
    if isinstance(found, list):
        for number, each in enumerate(found):
            yield from examples(each, f"{where}/{number}")
    if not isinstance(found, dict):
        return
    schema = found.get("schema")
    if isinstance(schema, dict):
        if "example" in found:
            yield schema, found["example"], where
        named = found.get("examples", {})
        yield from ((schema, each["value"], f"{where}/{name}") for name, each in named.items() if "value" in each)
    elif isinstance(found.get("examples"), list):
        yield from ((found, each, where) for each in found["examples"])
    if "default" in found and not isinstance(found["default"], dict):
        yield found, found["default"], where
    for name, each in found.items():
        if name not in ("example", "examples", "default"):
            yield from examples(each, f"{where}/{name}")


def refused_by_ajv(description: dict[str, Any], pairs: list[Pair]) -> Any:
    """Return the values that ajv refuses."""
    given = json.dumps({"components": description["components"], "pairs": pairs})
    return json.loads(run("node", "validate.mjs", given=given))


def test_examples_and_defaults_match_their_schemas(host: RunningHost, site: str) -> None:
    """The validator of Python and that of JavaScript, which computes with binary numbers, both accept them."""
    description = description_of(host, site)
    pairs = list(examples(description))
    assert len(pairs) >= 10
    for schema, value, where in pairs:
        errors = list(Draft202012Validator({**schema, "components": description["components"]}).iter_errors(value))
        assert errors == [], where
    assert refused_by_ajv(description, pairs) == []


def test_every_valid_price_is_valid_in_javascript(host: RunningHost) -> None:
    """A thousand prices with up to four fraction digits are accepted, and a too large one is refused."""
    description = description_of(host, "main")
    price = description["components"]["schemas"]["ProductDraft"]["properties"]["price"]
    random = Random(1)
    pairs: list[Pair] = [(price, random.randrange(10**7) / 10**4, "price") for _ in range(1000)]
    assert refused_by_ajv(description, pairs) == []
    assert len(refused_by_ajv(description, [(price, 10**11, "too large"), (price, -1, "negative")])) == 2


@pytest.mark.parametrize(
    "linter",
    [
        ("redocly", "lint", "--max-problems", "1000"),
        ("spectral", "lint", "--ruleset", ".spectral.yaml", "--fail-severity", "hint"),
    ],
    ids=lambda linter: linter[0],
)
def test_linters_find_nothing(host: RunningHost, site: str, tmp_path: Path, linter: tuple[str, ...]) -> None:
    """There are no errors and no warnings, except for rules that the configurations disable with a reason."""
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(description_of(host, site)), encoding="utf-8")
    name, *arguments = linter
    said = run(NODE / "node_modules" / ".bin" / name, *arguments, file)
    assert "warning" not in said.lower().replace("0 warnings", "")

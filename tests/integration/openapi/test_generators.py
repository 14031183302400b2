"""Other generators' output from the description, types for TypeScript and models for Python, used unchanged."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .test_javascript import NODE, description_of, pytestmark, run

if TYPE_CHECKING:
    from plughost.testing import RunningHost

__all__ = ["pytestmark"]


def written(host: RunningHost, folder: Path, site: str) -> Path:
    """Write the description of a site to a file."""
    file = folder / f"{site}.json"
    file.write_text(json.dumps(description_of(host, site)), encoding="utf-8")
    return file


def test_typescript_uses_every_service(host: RunningHost, tmp_path: Path) -> None:
    """openapi-typescript's types compile with strict settings, and a program with them uses every service."""
    tools = NODE / "node_modules" / ".bin"
    for site in ("main", "library"):
        run(tools / "openapi-typescript", written(host, tmp_path, site), "-o", tmp_path / f"{site}.d.ts")
    (tmp_path / "round.ts").write_bytes((NODE / "round.ts").read_bytes())
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").symlink_to(NODE / "node_modules")
    strict = ("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--skipLibCheck")
    target = ("--target", "es2022", "--module", "nodenext", "--types", "node", "--outDir", tmp_path)
    run(tools / "tsc", *strict, *target, tmp_path / "round.ts")
    assert run("node", tmp_path / "round.js", host.url(), host.url("library")) == "all rounds done\n"


@pytest.mark.parametrize("site", ["main", "library"])
def test_models_for_python_are_typed_and_match_answers(
    host: RunningHost, site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """datamodel-code-generator's models pass mypy --strict, and accept the services' answers."""
    made = tmp_path / f"made_{site}.py"
    program = Path(sys.executable).with_name("datamodel-codegen")
    kind = ("--output-model-type", "pydantic_v2.BaseModel", "--target-python-version", "3.11", "--use-annotated")
    run(program, "--input", written(host, tmp_path, site), "--input-file-type", "openapi", "--output", made, *kind)
    mypy: list[str | Path] = [sys.executable, "-m", "mypy", "--strict", "--config-file", ""]
    done = subprocess.run(
        [*mypy, "--cache-dir", tmp_path / "cache", made], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stdout
    monkeypatch.syspath_prepend(str(tmp_path))
    models: Any = importlib.import_module(made.stem)
    with host.client() as client:
        if site == "main":
            draft = {"sku": "made", "name": "Tea", "price": 4.95, "stock": 2}
            assert models.Product.model_validate(client.post("/api/v2/products", json=draft).json()).inStock is True
            report = models.HealthReport.model_validate(client.get("/q/health").json())
            assert report.status.value == "UP"
        else:
            keys = client.get(f"{host.url('library')}/mylibrary/.well-known/jwks.json").json()
            assert models.KeySet.model_validate(keys).keys

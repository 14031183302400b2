"""`./dev release` builds a reproducible release."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
ONLY: Final = ("--only", ".", "--only", "plugins/packages", "--only", "plugins/messages")


def _build(folder: Path, umask: int, only: tuple[str, ...]) -> dict[str, bytes]:
    command = [sys.executable, str(ROOT / "release" / "build.py"), str(folder), *only]
    subprocess.run(command, check=True, umask=umask, cwd=folder.parent, timeout=300)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module", params=[ONLY, pytest.param((), marks=pytest.mark.thorough)], ids=["some", "all"])
def released(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], ...]:
    """The same commit, built twice with different umasks."""
    folder = tmp_path_factory.mktemp("releases")
    return _build(folder / "first", 0o022, request.param), _build(folder / "second", 0o077, request.param)


def test_the_same_commit_makes_the_same_bytes(released: tuple[dict[str, bytes], ...]) -> None:
    """Wheels, hashes and SBOM are equal in every build."""
    first, second = released
    assert {name: hashlib.sha256(data).hexdigest() for name, data in first.items()} == {
        name: hashlib.sha256(data).hexdigest() for name, data in second.items()
    }
    assert sum(name.endswith(".whl") for name in first) >= 3


def test_the_hashes_match_the_files(released: tuple[dict[str, bytes], ...]) -> None:
    """`sha256sum --check SHA256SUMS` succeeds, and every file is listed."""
    files = dict(released[0])
    listed = dict(line.split("  ")[::-1] for line in files.pop("SHA256SUMS").decode().splitlines())
    assert listed == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def test_the_sbom_lists_the_wheels_and_their_requirements(released: tuple[dict[str, bytes], ...]) -> None:
    """Each component has a version and a package URL, each wheel a hash, and every requirement is listed."""
    files = released[0]
    sbom = json.loads(files["sbom.cdx.json"])
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    components = {each["name"]: each for each in sbom["components"]}
    for name, data in files.items():
        if name.endswith(".whl"):
            own = components[name.split("-")[0].replace("_", "-")]
            assert own["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]
    falcon = components["falcon"]
    assert falcon["purl"] == f"pkg:pypi/falcon@{falcon['version']}"
    needs = {each["ref"]: each.get("dependsOn", []) for each in sbom["dependencies"]}
    host = components["plughost"]["bom-ref"]
    assert falcon["bom-ref"] in needs[host]
    assert host in needs[components["plughost-messages"]["bom-ref"]]

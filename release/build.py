"""Build a release: a wheel of each distribution, their hashes, and an SBOM. The same commit gives the same bytes.

`./dev release DIR` runs it in an environment with editable installs of all distributions. The SBOM lists their
requirements in the versions that are installed there.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import uuid
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Final

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name, parse_wheel_filename

from plughost import Environment

ROOT: Final = Path(__file__).parents[1]
SUMS: Final = "SHA256SUMS"
SBOM: Final = "sbom.cdx.json"


def build(folder: Path, only: list[str]) -> None:
    """Build a release of the commit that is checked out, without uncommitted changes.

    Args:
        folder: The target folder, which must be empty or missing.
        only: The folders of the distributions. All if empty.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder} is not empty.")
    timestamp = int(_git("log", "-1", "--format=%ct"))
    os.umask(0o022)  # wheels contain the modes of files
    with tempfile.TemporaryDirectory() as checkout:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", "HEAD"))) as archive:
            archive.extractall(checkout, filter="data")
        for path in Path(checkout).rglob("*"):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        plugins = [f"plugins/{each.parent.name}" for each in Path(checkout).glob("plugins/*/setup.cfg")]
        for project in sorted(only or [".", *plugins]):
            _wheel(Path(checkout, project), folder, timestamp)
    wheels = sorted(folder.glob("*.whl"))
    (folder / SBOM).write_text(_sbom(wheels, timestamp), encoding="utf-8")
    listed = [*wheels, folder / SBOM]
    (folder / SUMS).write_text("".join(f"{_sha256(each)}  {each.name}\n" for each in listed), encoding="utf-8")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout  # noqa: S603, S607 - git, with fixed commands  # nosec B603 B607


def _wheel(project: Path, folder: Path, timestamp: int) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(timestamp), "PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"}
    subprocess.run([*command, "--wheel-dir", str(folder), str(project)], check=True, env=environment)  # noqa: S603 - pip, on our own sources  # nosec B603


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _sbom(wheels: list[Path], timestamp: int) -> str:
    """Return the SBOM in CycloneDX 1.6: the wheels, all their requirements, and the dependency graph."""
    environment = Environment()
    own = {str(parse_wheel_filename(wheel.name)[0]): wheel for wheel in wheels}
    components = {key: _component(key, environment, own.get(key)) for key in sorted(environment.closure(own))}
    missing = own.keys() - components.keys()
    if missing:
        sys.exit(f"These are not installed where the release is built: {', '.join(sorted(missing))}.")
    bom = Bom(components=components.values())
    bom.metadata.timestamp = datetime.fromtimestamp(timestamp, UTC)
    version = environment.versions["plughost"]
    bom.metadata.component = Component(
        name="plughost release", version=version, type=ComponentType.APPLICATION, bom_ref="release"
    )
    # Derived from the content, so that the same content has the same serial number.
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, "".join(map(_sha256, wheels)))
    bom.register_dependency(bom.metadata.component, [components[key] for key in sorted(own)])
    for key, component in components.items():
        needed = {str(canonicalize_name(each.name)) for each in environment.requirements(key)}
        bom.register_dependency(component, [components[each] for each in sorted(needed & components.keys())])
    return f"{JsonV1Dot6(bom).output_as_string(indent=2)}\n"


def _component(key: str, environment: Environment, wheel: Path | None) -> Component:
    version = environment.versions[key]
    license_expression = environment.installed[key].metadata.get("License-Expression")
    return Component(
        name=key,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{key}=={version}",
        purl=PackageURL("pypi", name=key, version=version),
        licenses=[DisjunctiveLicense(name=license_expression)] if license_expression else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=_sha256(wheel))] if wheel is not None else [],
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Build a release of the commit that is checked out.")
    parser.add_argument("folder", type=Path, help="the target folder, which must be empty or missing")
    parser.add_argument("--only", action="append", default=[], metavar="PROJECT", help="only this folder; repeatable")
    given = parser.parse_args()
    build(given.folder.absolute(), given.only)
    built = metadata.version("plughost")
    sys.stdout.write(f"plughost {built}: {len(list(given.folder.glob('*.whl')))} wheels, {SUMS} and {SBOM}.\n")


if __name__ == "__main__":
    main()

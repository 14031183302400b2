"""Attestations prove who built a package (PEP 740)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx
import pytest
from pydantic import ValidationError

from plughost import CommandError
from plughost_packages.attesting import verify_attestations
from plughost_packages.settings import Settings

WHEEL: Final = "sampleproject-4.0.0-py3-none-any.whl"
PROVENANCE: Final = f"https://pypi.org/integrity/sampleproject/4.0.0/{WHEEL}/provenance"
BUILDER: Final = "github:pypa/sampleproject/release.yml"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A file without an attestation."""
    file = tmp_path / WHEEL
    file.write_bytes(b"not a wheel at all")
    return file


def test_a_required_attestation_must_exist(wheel: Path) -> None:
    """If none is required, the file is accepted without one."""
    verify_attestations(wheel, [BUILDER], required=False)
    with pytest.raises(CommandError, match="has no attestation next to it"):
        verify_attestations(wheel, [], required=True)


@pytest.mark.parametrize("suffix", [".publish.attestation", ".provenance"])
@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"version": 1, "attestation_bundles": []}', "\udcff"])
def test_an_invalid_attestation_is_refused(wheel: Path, suffix: str, content: str) -> None:
    """This holds even if none is required, because its presence makes a claim."""
    pytest.importorskip("pypi_attestations", reason="the extra attestations is not installed")
    wheel.with_name(f"{WHEEL}{suffix}").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(CommandError, match=r"is not valid|contains no attestation"):
        verify_attestations(wheel, [], required=False)


def test_without_the_verifier_an_attested_file_is_refused(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If builders are named, the error says to install `pypi-attestations`."""
    wheel.with_name(f"{WHEEL}.provenance").write_text("{}")
    monkeypatch.setitem(sys.modules, "pypi_attestations", None)
    verify_attestations(wheel, [], required=False)
    with pytest.raises(CommandError, match=r"plughost-packages\[attestations\]"):
        verify_attestations(wheel, [BUILDER], required=False)


@pytest.mark.parametrize("named", ["", "pypa/sampleproject", "github:pypa/release.yml", "svn:a/b/c", "github:a/b/c d"])
def test_a_builder_is_a_repository_and_a_workflow(named: str) -> None:
    """Anything else is an error in the settings."""
    assert Settings(attested_by=(BUILDER, "gitlab:group/below/project/.gitlab-ci.yml"))
    with pytest.raises(ValidationError, match="must be like github:OWNER/REPOSITORY"):
        Settings(attested_by=(named,))


def test_a_genuine_attestation_is_valid_for_its_file_and_builder_only(tmp_path: Path) -> None:
    """It is verified without a network; another file or another builder is refused."""
    pytest.importorskip("pypi_attestations", reason="the extra attestations is not installed")
    try:
        provenance = httpx.get(PROVENANCE, timeout=20)
    except httpx.HTTPError as error:
        pytest.skip(f"PyPI's attestations can't be had here: {error}")
    if provenance.status_code != 200:
        pytest.skip(f"PyPI's attestations can't be had here: {provenance.status_code}")
    fetched = [
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(tmp_path),
        "sampleproject==4.0.0",
    ]
    subprocess.run([sys.executable, "-m", "pip", *fetched], check=True)
    wheel = tmp_path / WHEEL
    wheel.with_name(f"{WHEEL}.provenance").write_bytes(provenance.content)
    for builders in ([], [BUILDER], ["github:somebody/else/release.yml", BUILDER]):
        verify_attestations(wheel, builders, required=True)
    with pytest.raises(CommandError, match="is not valid"):
        verify_attestations(wheel, ["github:somebody/else/release.yml"], required=False)
    wheel.write_bytes(wheel.read_bytes() + b" ")
    with pytest.raises(CommandError, match="is not valid"):
        verify_attestations(wheel, [BUILDER], required=False)

"""Attestations: who built a file, as PEP 740 has it, verified without a network by `pypi-attestations`."""

from __future__ import annotations

import json
import logging
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from plughost import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PUBLISHER: Final = re.compile(r"(?P<kind>github|gitlab):(?P<repository>[^/\s]+/[^\s]+)/(?P<workflow>[^/\s]+)")
"""A publisher in the settings: `github:OWNER/REPOSITORY/WORKFLOW.yml`."""

SUFFIXES: Final = (".publish.attestation", ".provenance")
"""Suffixes of a file with one attestation, and of an index's file with all of them."""


def verify_attestations(file: Path, builders: Sequence[str], *, required: bool) -> None:
    """Verify the attestations next to a file without a network, by the trust root that sigstore has or has cached.

    `builders` are the allowed publishers; any if it is empty.

    Raises:
        CommandError: An attestation is required and missing, is invalid, or is from another publisher.
    """
    beside = [path for suffix in SUFFIXES if (path := file.with_name(f"{file.name}{suffix}")).is_file()]
    if not beside and not required:
        return
    if not beside:
        raise CommandError(f"{file.name} has no attestation next to it, but the setting require_attestations is on.")
    try:
        library: Any = import_module("pypi_attestations")
    except ImportError as error:
        if not (required or builders):
            return
        advice = "pip install 'plughost-packages[attestations]'"
        raise CommandError(f"Attestations can't be verified ({error}). Install the verifier: {advice}") from None
    logging.getLogger("sigstore").setLevel(logging.ERROR)  # it would warn about each offline verification
    identities = [_publisher(library, each) for each in builders]
    if not builders:
        identities = [import_module("sigstore.verify.policy").UnsafeNoOp()]
    try:
        distribution = library.Distribution.from_file(file)
        found = [each for path in beside for each in _attestations(library, path)]
        if not found:
            raise CommandError(f"{beside[0].name} contains no attestation.")
        for attestation in found:
            _verify(library, attestation, distribution, identities)
    except (library.AttestationError, ValueError) as error:
        raise CommandError(f"The attestation of {file.name} is not valid: {error}") from None


def _attestations(library: Any, path: Path) -> Iterator[Any]:
    text = path.read_text(encoding="utf-8")
    if path.name.endswith(SUFFIXES[0]):
        yield library.Attestation.model_validate(json.loads(text))
    else:
        for bundle in library.Provenance.model_validate(json.loads(text)).attestation_bundles:
            yield from bundle.attestations


def _verify(library: Any, attestation: Any, distribution: Any, identities: Sequence[Any]) -> None:
    for identity in identities:
        try:
            attestation.verify(identity, distribution, offline=True)
        except library.AttestationError as error:
            failure = error
        else:
            return
    raise failure


def _publisher(library: Any, publisher: str) -> Any:
    found = PUBLISHER.fullmatch(publisher)
    assert found is not None, "the settings were checked"
    if found["kind"] == "github":
        return library.GitHubPublisher(repository=found["repository"], workflow=found["workflow"])
    return library.GitLabPublisher(repository=found["repository"], workflow_filepath=found["workflow"])

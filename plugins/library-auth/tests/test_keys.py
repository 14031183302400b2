"""Signing keys are created once, kept private, rotated, and followed by a running host."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plughost_library_auth.keyring import KEY_FILE, KeyFile, KeyFileError, KeyRing
from plughost_library_auth.keys import SigningKey

if TYPE_CHECKING:
    from plughost_library_auth.settings import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")


def open_ring(folder: Path, algorithm: Algorithm = "EdDSA", lifetime: int = 900) -> KeyRing:
    """Open the keys as a starting host does, with the algorithm whose keys are created fastest."""
    ring = KeyRing(folder, algorithm=algorithm, lifetime=lifetime)
    ring.prepare()
    return ring


def age(folder: Path, seconds: int) -> None:
    """Let all keys of a folder appear to have been retired earlier."""
    path = folder / KEY_FILE
    records = json.loads(path.read_bytes())
    for record in records:
        if record["retired"] is not None:
            record["retired"] -= seconds
    path.write_text(json.dumps(records))


def test_the_key_survives_a_restart(tmp_path: Path) -> None:
    """Reopening a folder returns the key that was created first."""
    assert open_ring(tmp_path).signing_key().kid == open_ring(tmp_path).signing_key().kid


def test_inspecting_changes_nothing(tmp_path: Path) -> None:
    """Commands that only open the keys create none and retire none."""
    KeyRing(tmp_path, algorithm="EdDSA", lifetime=900)
    assert list(tmp_path.iterdir()) == []
    open_ring(tmp_path)
    before = (tmp_path / KEY_FILE).read_bytes()
    KeyRing(tmp_path, algorithm="ES256", lifetime=9000)
    assert (tmp_path / KEY_FILE).read_bytes() == before


def test_a_login_during_the_start_has_a_key(tmp_path: Path) -> None:
    """A ring creates its key when it first signs, or first shows its public keys."""
    signing, showing = (KeyRing(tmp_path / name, algorithm="EdDSA", lifetime=900) for name in "ab")
    assert signing.signing_key().algorithm == "EdDSA"
    assert len(showing.public_keys()) == 1


def test_a_verifier_follows_the_first_key(tmp_path: Path) -> None:
    """A ring that was opened before any key existed verifies with another ring's key."""
    verifier = KeyRing(tmp_path, algorithm="EdDSA", lifetime=900)
    assert verifier.verification_key("none yet") is None
    assert verifier.verification_key(open_ring(tmp_path).signing_key().kid) is not None


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """The key file has mode 0600, even with an open umask and after a restore with open permissions."""
    before = os.umask(0)
    try:
        open_ring(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    (tmp_path / KEY_FILE).chmod(0o644)
    open_ring(tmp_path)
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


def test_simultaneous_processes_use_one_key(tmp_path: Path) -> None:
    """Four processes that open an empty folder at the same moment all sign with one key."""
    script = "import sys; from pathlib import Path; from plughost_library_auth.keyring import KeyRing;"
    script += "sys.stdin.read();"  # all of them pass at once
    script += "print(KeyRing(Path(sys.argv[1]), algorithm='RS256', lifetime=900).signing_key().kid)"
    gate, opener = os.pipe()
    starts = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdin=gate, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    os.close(gate)
    os.close(opener)
    assert len({start.communicate(timeout=60)[0] for start in starts}) == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_is_read_back_unchanged(algorithm: Algorithm) -> None:
    """A record and its key are equivalent, for every algorithm."""
    key = SigningKey.generate(algorithm, 900)
    again = SigningKey.model_validate_json(key.model_dump_json())
    assert again.model_dump() == key.model_dump()
    assert again.jwk() == key.jwk()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_jwk_contains_nothing_private(algorithm: Algorithm) -> None:
    """A public key has its name, use and algorithm, and no private member."""
    key = SigningKey.generate(algorithm, 900)
    jwk = key.jwk()
    assert (jwk["kid"], jwk["use"], jwk["alg"]) == (key.kid, "sig", algorithm)
    assert not set(jwk) & {"d", "p", "q", "dp", "dq", "qi", "k", "key_ops"}


def test_a_key_of_another_algorithm_is_refused() -> None:
    """A record is damaged if its private key does not fit its algorithm."""
    record = SigningKey.generate("EdDSA", 900).model_dump() | {"algorithm": "ES256"}
    with pytest.raises(ValueError, match="is not one for ES256"):
        SigningKey.model_validate(record)


def test_rotation_signs_with_the_new_key_and_verifies_with_both(tmp_path: Path) -> None:
    """After a rotation the new key signs, and both keys verify and are published."""
    ring = open_ring(tmp_path)
    old = ring.signing_key()
    new = ring.rotate()
    assert ring.signing_key().kid == new.kid != old.kid
    assert {key.kid for key in ring.public_keys()} == {old.kid, new.kid}


def test_a_running_host_follows_a_rotation(tmp_path: Path) -> None:
    """An open ring uses a key that another ring has created: to sign, to verify and to publish."""
    names = [open_ring(tmp_path), open_ring(tmp_path), open_ring(tmp_path)]
    new = open_ring(tmp_path).rotate()
    assert names[0].signing_key().kid == new.kid
    assert names[1].verification_key(new.kid) is not None
    assert new.kid in {key.kid for key in names[2].public_keys()}


def test_a_running_host_notices_a_removed_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that only verifies reads the file from time to time, so a retired key does not verify for ever."""
    ring = open_ring(tmp_path)
    old = ring.signing_key().kid
    open_ring(tmp_path).rotate()
    age(tmp_path, 3600)
    assert ring.verification_key(old) is not None
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert ring.verification_key(old) is None


def test_a_retired_key_verifies_until_its_tokens_have_expired(tmp_path: Path) -> None:
    """The old key stays valid for the lifetime of its tokens, and is then removed."""
    ring = open_ring(tmp_path, lifetime=900)
    old = ring.signing_key().kid
    ring.rotate()
    age(tmp_path, 890)
    assert open_ring(tmp_path).verification_key(old) is not None
    age(tmp_path, 100)
    again = open_ring(tmp_path)
    assert again.verification_key(old) is None
    assert old not in {key.kid for key in again.public_keys()}
    again.rotate()
    assert old not in (tmp_path / KEY_FILE).read_text()


def test_a_shorter_lifetime_does_not_invalidate_older_tokens(tmp_path: Path) -> None:
    """A key is kept for the longest lifetime with which it has signed."""
    old = open_ring(tmp_path, lifetime=900).signing_key().kid
    open_ring(tmp_path, lifetime=7200)
    ring = open_ring(tmp_path, lifetime=60)
    ring.rotate()
    age(tmp_path, 7000)
    assert open_ring(tmp_path, lifetime=60).verification_key(old) is not None


def test_another_algorithm_creates_another_key(tmp_path: Path) -> None:
    """A change of the setting retires the old algorithm's key, which still verifies."""
    old = open_ring(tmp_path, "EdDSA").signing_key()
    ring = open_ring(tmp_path, "ES256")
    assert ring.signing_key().algorithm == "ES256"
    assert ring.verification_key(old.kid) is not None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b'[{"kid": "a"}]', b"[" * 5000],
    ids=["empty", "cut", "none", "null", "not UTF-8", "incomplete", "nested"],
)
def test_a_damaged_file_is_reported_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    """A start with a damaged key file names it and both remedies, and leaves it alone."""
    (tmp_path / KEY_FILE).write_bytes(content)
    with pytest.raises(KeyFileError, match=r"signing-keys\.json are damaged .*: put the file back from a backup, or"):
        open_ring(tmp_path)
    assert (tmp_path / KEY_FILE).read_bytes() == content


def test_a_file_without_a_signing_key_is_damaged(tmp_path: Path) -> None:
    """If the newest key of a file is retired, there is none to sign with."""
    record = SigningKey.generate("EdDSA", 900).retire()
    (tmp_path / KEY_FILE).write_text(f"[{record.model_dump_json()}]")
    with pytest.raises(KeyFileError, match="no key signs"):
        KeyFile.read(tmp_path / KEY_FILE)


def test_a_file_with_one_key_id_twice_is_damaged(tmp_path: Path) -> None:
    """Otherwise tokens of one of the two keys would be checked with the other, and all be refused."""
    old, new = SigningKey.generate("EdDSA", 900), SigningKey.generate("EdDSA", 900)
    records = old.retire(), new.model_copy(update={"kid": old.kid})
    (tmp_path / KEY_FILE).write_text(f"[{','.join(each.model_dump_json() for each in records)}]")
    with pytest.raises(KeyFileError, match="two keys have the same kid"):
        KeyFile.read(tmp_path / KEY_FILE)


def test_a_running_host_keeps_its_keys_without_the_file(tmp_path: Path) -> None:
    """If the file is deleted or damaged, logins still work."""
    ring = open_ring(tmp_path)
    kid = ring.signing_key().kid
    key_of_another_kind = (tmp_path / KEY_FILE).read_bytes().replace(b"K2Vw", b"K2Vx")  # Ed448, which is longer
    for content in (b"damaged", key_of_another_kind):
        (tmp_path / KEY_FILE).write_bytes(content)
        assert ring.signing_key().kid == kid
    (tmp_path / KEY_FILE).unlink()
    assert ring.signing_key().kid == kid

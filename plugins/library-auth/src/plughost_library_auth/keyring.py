"""The file of signing keys: made once, shared by processes, followed while it changes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from cryptography.exceptions import UnsupportedAlgorithm
from pydantic import TypeAdapter, ValidationError

from plughost import locked_folder, tighten, write_private
from plughost.stores import Unavailable
from plughost_library_auth.keys import KeyRecord, SigningKey

if TYPE_CHECKING:
    from plughost_library_auth.settings import Algorithm

KEY_FILE: Final = "signing-keys.json"

_LOOK_EVERY: Final = 10  # seconds
_RECORDS: Final = TypeAdapter(list[KeyRecord])


class KeyFileError(Exception):
    """The file of signing keys is not there, or not what this plugin wrote."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What one version of the file holds.

    Attributes:
        keys: All keys, oldest first.
        stamp: Differs between any two versions of the file.
    """

    keys: tuple[SigningKey, ...]
    stamp: tuple[int, int, int]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file.

        Raises:
            KeyFileError: It is missing, unreadable or damaged; the message says what to do.
        """
        try:
            with path.open("rb") as file:
                stamp = _stamp(os.fstat(file.fileno()))
                content = file.read()
            keys = tuple(SigningKey.of_record(record) for record in _RECORDS.validate_json(content))
            if not keys or keys[-1].retired is not None:
                msg = "no key signs"
                raise ValueError(msg)
        except OSError as error:
            msg = f"cannot read the signing keys {path}: {error.strerror}"
            raise KeyFileError(msg) from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            msg = (
                f"the signing keys {path} are damaged ({reason}): put the file back from a backup, or delete it to"
                " have a new key made, which logs everybody out"
            )
            raise KeyFileError(msg) from error
        return cls(keys, stamp)

    @property
    def signing(self) -> SigningKey:
        """The key that signs: the newest."""
        return self.keys[-1]


class KeyRing:
    """The signing keys of a data folder, as the latest version of their file has them.

    A login, a token with an unknown key, and once in a while one with a known key look whether the file changed
    (one `stat`): that is how a running host takes up a key that `rotate-key` made. Else verifying reads nothing.
    """

    def __init__(self, folder: Path, *, algorithm: Algorithm, lifetime: int) -> None:
        """Open the keys of a folder, without writing there.

        Args:
            folder: The plugin's data folder.
            algorithm: What new tokens are signed with.
            lifetime: Seconds that new tokens are good for.

        Raises:
            KeyFileError: The file is unreadable or damaged.
        """
        self._path = folder / KEY_FILE
        self._algorithm: Algorithm = algorithm
        self._lifetime = lifetime
        self._looked = time.monotonic()
        self._file = KeyFile.read(self._path) if self._path.exists() else None

    def prepare(self) -> KeyFile:
        """Make the first key, or one of a newly set algorithm; a host does so once, when it starts to serve.

        Not sooner, so that commands which only look at a host's plugins change nothing.

        Raises:
            KeyFileError: The file is damaged.
            OSError: It can't be written.
        """
        with locked_folder(self._path.parent):
            self._file = self._with_signing_key()
            return self._file

    def signing_key(self) -> SigningKey:
        """Return the key that signs from now on.

        Raises:
            Unavailable: It is not made yet, and can't be kept, as on a full disk.
        """
        return self._latest().signing

    def verification_key(self, kid: str) -> SigningKey | None:
        """Return the key of this name while tokens that it signed may be valid, else None."""
        key = self._find(kid)
        if key is None or time.monotonic() - self._looked > _LOOK_EVERY:
            self._follow()
            key = self._find(kid)
        return key if key is not None and time.time() < key.verifies_until else None

    def public_keys(self) -> tuple[SigningKey, ...]:
        """Return every key whose tokens may be valid; raises as `signing_key` does."""
        return _without_spent(self._latest().keys)

    def rotate(self) -> SigningKey:
        """Make a new key that signs from now on; the old ones verify until the last of their tokens expired."""
        with locked_folder(self._path.parent):
            self._file = self._add_key(KeyFile.read(self._path).keys if self._path.exists() else ())
            return self._file.signing

    def _find(self, kid: str) -> SigningKey | None:
        keys = self._file.keys if self._file is not None else ()
        return next((key for key in keys if key.kid == kid), None)

    def _latest(self) -> KeyFile:
        self._follow()
        if self._file is None or not self._suits(self._file.signing):
            try:
                return self.prepare()
            except OSError as error:
                raise Unavailable(f"the signing key can't be kept in {self._path}: {error.strerror}") from error
        return self._file

    def _suits(self, key: SigningKey) -> bool:
        return key.algorithm == self._algorithm and key.lifetime >= self._lifetime

    def _follow(self) -> None:
        """Take up the file where it changed.

        A file that is gone or damaged under a running host leaves the keys in use; the health check reports it.
        """
        self._looked = time.monotonic()
        with suppress(OSError, KeyFileError):
            if self._file is None or _stamp(self._path.stat()) != self._file.stamp:
                self._file = KeyFile.read(self._path)

    def _with_signing_key(self) -> KeyFile:
        """Return the file with a signing key of the set algorithm that knows the set lifetime."""
        if not self._path.exists():
            return self._add_key(())
        present = KeyFile.read(self._path)
        signing = present.signing
        if signing.algorithm != self._algorithm:
            return self._add_key(present.keys)
        tighten(self._path, 0o600)  # a file put back from a backup may have come with another mode
        if signing.lifetime < self._lifetime:
            return self._write((*present.keys[:-1], replace(signing, lifetime=self._lifetime)))
        return present

    def _add_key(self, keys: Sequence[SigningKey]) -> KeyFile:
        retired = (key.retire() if key.retired is None else key for key in keys)
        return self._write((*retired, SigningKey.generate(self._algorithm, self._lifetime)))

    def _write(self, keys: Sequence[SigningKey]) -> KeyFile:
        write_private(self._path, _RECORDS.dump_json([key.record() for key in _without_spent(keys)], indent=2))
        return KeyFile.read(self._path)


def _without_spent(keys: Sequence[SigningKey]) -> tuple[SigningKey, ...]:
    now = time.time()
    return tuple(key for key in keys if now < key.verifies_until)


def _stamp(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size

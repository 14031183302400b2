"""The file of signing keys: created once, shared by processes, reloaded when it changes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from pydantic import TypeAdapter, ValidationError

from plughost import locked_folder, tighten, write_private
from plughost.stores import Unavailable
from plughost_library_auth.keys import SigningKey

if TYPE_CHECKING:
    from plughost_library_auth.settings import Algorithm

KEY_FILE: Final = "signing-keys.json"

_CHECK_INTERVAL: Final = 10  # seconds
_KEYS: Final = TypeAdapter(tuple[SigningKey, ...])


class KeyFileError(Exception):
    """The file of signing keys is missing, unreadable or damaged."""


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The content of one version of the file.

    Attributes:
        keys: All keys, oldest first.
        stamp: Identifies the version of the file.
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
            keys = _parse(content)
            if not keys or keys[-1].retired is not None:
                raise ValueError("no key signs")
            if len({key.kid for key in keys}) < len(keys):
                raise ValueError("two keys have the same kid")
        except OSError as error:
            raise KeyFileError(f"cannot read the signing keys {path}: {error.strerror}") from error
        except (ValueError, TypeError, InternalError, UnsupportedAlgorithm) as error:
            reason = (
                error.errors()[0]["msg"].removeprefix("Value error, ")
                if isinstance(error, ValidationError)
                else str(error)
            )
            raise KeyFileError(
                f"the signing keys {path} are damaged ({reason}): put the file back from a backup, or delete it to"
                " have a new key made, which logs everybody out"
            ) from error
        return cls(keys, stamp)

    @property
    def signing(self) -> SigningKey:
        """The key that signs: the newest."""
        return self.keys[-1]


class KeyRing:
    """The signing keys of a data folder, kept up to date with their file.

    A running host finds a key of `rotate-key` because it checks the file for changes (one `stat`): at each login,
    at a token with an unknown key, and every `_CHECK_INTERVAL` at one with a known key.
    """

    def __init__(self, folder: Path, *, algorithm: Algorithm, lifetime: int) -> None:
        """Open the keys of a folder, without writing there.

        Args:
            folder: The plugin's data folder.
            algorithm: The algorithm that signs new tokens.
            lifetime: Seconds that new tokens are valid.

        Raises:
            KeyFileError: The file is unreadable or damaged.
        """
        self._path = folder / KEY_FILE
        self._algorithm: Algorithm = algorithm
        self._lifetime = lifetime
        self._checked_at = time.monotonic()
        self._file = KeyFile.read(self._path) if self._path.exists() else None

    def prepare(self) -> KeyFile:
        """Create the first key, or one for a newly set algorithm.

        A host does so once, when it starts to serve: commands that only inspect plugins must not write.

        Raises:
            KeyFileError: The file is damaged.
            OSError: It can't be written.
        """
        with locked_folder(self._path.parent):
            self._file = self._ensure_signing_key()
            return self._file

    def signing_key(self) -> SigningKey:
        """Return the key that signs new tokens.

        Raises:
            Unavailable: There is no key yet, and a new one can't be stored, as on a full disk.
        """
        return self._latest().signing

    def verification_key(self, kid: str) -> SigningKey | None:
        """Return the key with this id while tokens that it signed can be valid, else None."""
        key = self._find(kid)
        if key is None or time.monotonic() - self._checked_at > _CHECK_INTERVAL:
            self._reload_if_changed()
            key = self._find(kid)
        return key if key is not None and time.time() < key.verifies_until else None

    def public_keys(self) -> tuple[SigningKey, ...]:
        """Return every key whose tokens can be valid; raises as `signing_key` does."""
        return _unexpired(self._latest().keys)

    def rotate(self) -> SigningKey:
        """Create a new signing key. The old ones verify until their last token has expired."""
        with locked_folder(self._path.parent):
            self._file = self._add_key(KeyFile.read(self._path).keys if self._path.exists() else ())
            return self._file.signing

    def _find(self, kid: str) -> SigningKey | None:
        keys = self._file.keys if self._file is not None else ()
        return next((key for key in keys if key.kid == kid), None)

    def _latest(self) -> KeyFile:
        self._reload_if_changed()
        if self._file is None or not self._is_suitable(self._file.signing):
            try:
                return self.prepare()
            except OSError as error:
                raise Unavailable(f"the signing key can't be kept in {self._path}: {error.strerror}") from error
        return self._file

    def _is_suitable(self, key: SigningKey) -> bool:
        return key.algorithm == self._algorithm and key.lifetime >= self._lifetime

    def _reload_if_changed(self) -> None:
        """Reload the file if it changed.

        If it is missing or damaged, the loaded keys stay in use, and the health check reports it.
        """
        self._checked_at = time.monotonic()
        with suppress(OSError, KeyFileError):
            if self._file is None or _stamp(self._path.stat()) != self._file.stamp:
                self._file = KeyFile.read(self._path)

    def _ensure_signing_key(self) -> KeyFile:
        """Return the file, with a signing key for the configured algorithm and lifetime."""
        if not self._path.exists():
            return self._add_key(())
        present = KeyFile.read(self._path)
        signing = present.signing
        if signing.algorithm != self._algorithm:
            return self._add_key(present.keys)
        tighten(self._path, 0o600)  # a file restored from a backup may have another mode
        if signing.lifetime < self._lifetime:
            return self._write((*present.keys[:-1], signing.model_copy(update={"lifetime": self._lifetime})))
        return present

    def _add_key(self, keys: Sequence[SigningKey]) -> KeyFile:
        retired = (key.retire() if key.retired is None else key for key in keys)
        return self._write((*retired, SigningKey.generate(self._algorithm, self._lifetime)))

    def _write(self, keys: Sequence[SigningKey]) -> KeyFile:
        write_private(self._path, _KEYS.dump_json(_unexpired(keys), indent=2))
        return KeyFile.read(self._path)


@lru_cache(maxsize=1)  # to check an RSA key takes 40 ms, and each hook and each health check reads the file
def _parse(content: bytes) -> tuple[SigningKey, ...]:
    return _KEYS.validate_json(content)


def _unexpired(keys: Sequence[SigningKey]) -> tuple[SigningKey, ...]:
    now = time.time()
    return tuple(key for key in keys if now < key.verifies_until)


def _stamp(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size

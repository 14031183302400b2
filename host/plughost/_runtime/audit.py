"""The audit trail: an event for each action that somebody may have to answer for later."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import secrets
from contextlib import contextmanager, suppress
from functools import cached_property
from time import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from plughost._api.errors import NotRunning
from plughost._files import locked_folder, write_private
from plughost._logging import format_timestamp, make_logger, suppress_events
from plughost._runtime.control import send_command, user_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import structlog

    from plughost._settings.sources import Settings

_KEY_FILE: Final = "audit-key"


class Audit:
    """Writes the audit trail of one host: into its log, or into a file of its own."""

    def __init__(self, logger: structlog.stdlib.BoundLogger, data_dir: Path, file: Path | None = None) -> None:
        """Write to the log, or to a file as lines of JSON. The file may be moved away at any time."""
        self._logger = logger
        self._data_dir = data_dir
        self._file = file
        self._new_key = secrets.token_bytes(32)  # unless the data folder has one
        self._is_key_reported = False

    def record(self, what: str, outcome: str, **fields: Any) -> None:
        """Write an event, as `PluginContext.audit`. `who` is a pseudonym. Fields that are None are omitted."""
        event = {"what": what, "outcome": outcome, **{key: value for key, value in fields.items() if value is not None}}
        self.write(event)

    @contextmanager
    def recording(self, what: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """Write an event when the block ends: its outcome is `ok`, or `failed` if the block raises.

        Yields:
            The event's fields. The block may add some, or set another `outcome`.
        """
        event = dict(fields)
        outcome = "failed"
        try:
            yield event
            outcome = "ok"
        except SystemExit as error:
            outcome = "failed" if error.code else "ok"
            raise
        finally:
            self.record(what, event.pop("outcome", outcome), **event)

    def write_command_event(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Write an event that a command has sent, and return an empty response."""
        self.write(event)
        return {}

    def write(self, event: Mapping[str, Any]) -> None:
        if self._file is None:
            self._logger.info("audit", **event)
            return
        line = msgspec.json.encode({"timestamp": format_timestamp(time()), **event}, enc_hook=str)
        try:
            descriptor = self._open(self._file)
            try:
                _append(descriptor, line + b"\n")
            finally:
                os.close(descriptor)
        except OSError as error:  # the audited action goes on, and its event is not lost
            self._logger.error("the audit file can't be written", reason=str(error))
            self._logger.info("audit", **event)

    def _open(self, file: Path) -> int:
        """Open the file. A new one made by root gets the data folder's owner, so that the host can write, too."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        with suppress(FileNotFoundError):
            return os.open(file, flags)
        try:
            descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o600)  # never follows a link
        except FileExistsError:  # another process has just made it
            return os.open(file, flags)
        with suppress(OSError):  # only root may, and there may be no data folder yet
            owner = self._data_dir.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        return descriptor

    def pseudonym(self, account: str) -> str:
        """Return the pseudonym of an account on this host: a hash with a secret key.

        A to Z count as a to z, as in the names of accounts.
        """
        try:
            key = self._key
        except OSError as error:  # the audited action goes on, as when its event can't be written
            if not self._is_key_reported:
                self._is_key_reported = True
                self._logger.error("the key of the audit trail can't be kept", reason=str(error))
            key = self._new_key
        return hmac.new(key, account.encode("utf-8", "surrogatepass").lower(), hashlib.sha256).hexdigest()[:16]

    @cached_property
    def _key(self) -> bytes:
        path = self._data_dir / _KEY_FILE
        if not path.exists():
            with locked_folder(self._data_dir):
                if not path.exists():
                    write_private(path, self._new_key)
        return path.read_bytes()


def _append(descriptor: int, line: bytes) -> None:
    """Append a line to a file as a whole: a full disk may take a part, which would also spoil the next line."""
    if (written := os.write(descriptor, line)) < len(line):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def audit_warnings(settings: Settings) -> Iterator[str]:
    """Yield a warning if the file can't be written: nobody would look for the trail in the log."""
    file = settings.path(settings.host.log.audit)
    if file is not None and not os.access(file if os.access(file, os.F_OK) else file.parent, os.W_OK):
        yield f"log.audit: {file} can't be written, so the audit trail goes to the log; let the host's user write it"


class CommandAudit(Audit):
    """Writes the events of a command: to the file, else to the log of the running host, else to standard error."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(make_logger(settings.host.log), settings.data_dir, settings.path(settings.host.log.audit))

    def record(self, what: str, outcome: str, **fields: Any) -> None:
        """Write an event, with the system user who ran the command."""
        super().record(what, outcome, **{"by": user_name(os.getuid()), "where": "command line", **fields})

    def write(self, event: Mapping[str, Any]) -> None:
        if self._file is None:
            try:
                send_command(self._data_dir, "audit", event=dict(event))
            except NotRunning:
                with suppress_events("audit"):  # the command reports it itself, too
                    super().write(event)
            return
        super().write(event)

"""The audit trail: one event for each thing that somebody may have to answer for later."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec

from plughost._api.errors import NotRunning
from plughost._files import locked_folder, write_private
from plughost._logging import make_logger, suppress_events
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
        """Write nothing yet: into the log, or as lines of JSON into a file, which may be moved away at any time."""
        self._logger = logger
        self._data_dir = data_dir
        self._file = file

    def note(self, what: str, outcome: str, **fields: Any) -> None:
        """Write an event, as `PluginContext.audit`. `who` is a pseudonym. Fields that are None are left out."""
        event = {"what": what, "outcome": outcome, **{key: value for key, value in fields.items() if value is not None}}
        self.write(event)

    @contextmanager
    def around(self, what: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """Write an event when the block ends: its outcome is `ok`, or `failed` where the block raises.

        Yields:
            The event's members, which the block may add to. What it sets as `outcome` stays.
        """
        event = dict(fields)
        ended = "failed"
        try:
            yield event
            ended = "ok"
        except SystemExit as error:
            ended = "failed" if error.code else "ok"
            raise
        finally:
            self.note(what, event.pop("outcome", ended), **event)

    def take(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Write an event of a command, and answer with nothing."""
        self.write(event)
        return {}

    def write(self, event: Mapping[str, Any]) -> None:
        """Write an event that is complete."""
        if self._file is None:
            self._logger.info("audit", **event)
            return
        line = msgspec.json.encode({"timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", **event}, enc_hook=str)
        try:
            descriptor = self._open(self._file)
            try:
                os.write(descriptor, line + b"\n")
            finally:
                os.close(descriptor)
        except OSError as error:  # what is audited goes on, and is not lost
            self._logger.error("the audit file can't be written", reason=str(error))
            self._logger.info("audit", **event)

    def _open(self, file: Path) -> int:
        """Open the file; a new one that root makes is the data folder's owner's, whose host writes there, too."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        with suppress(FileNotFoundError):
            return os.open(file, flags)
        try:
            descriptor = os.open(file, flags | os.O_CREAT | os.O_EXCL, 0o600)  # of no link, which may lead anywhere
        except FileExistsError:  # another process has just made it
            return os.open(file, flags)
        with suppress(OSError):  # only root may, and there may be no data folder yet
            owner = self._data_dir.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        return descriptor

    def pseudonym(self, account: str) -> str:
        """Return what stands for an account: always the same on this host. Without its key nobody can tell whose.

        A to Z are taken as a to z, as in the names of accounts.
        """
        return hmac.new(self._key, account.encode("utf-8", "surrogatepass").lower(), hashlib.sha256).hexdigest()[:16]

    @cached_property
    def _key(self) -> bytes:
        path = self._data_dir / _KEY_FILE
        if not path.exists():
            with locked_folder(self._data_dir):
                if not path.exists():
                    write_private(path, secrets.token_bytes(32))
        return path.read_bytes()


def audit_of(settings: Settings, logger: structlog.stdlib.BoundLogger) -> Audit:
    """Return the audit trail of a host with some settings."""
    return Audit(logger, settings.data_dir, settings.path(settings.host.log.audit))


def audit_warnings(settings: Settings) -> Iterator[str]:
    """Yield what is to be told of a file that can't be written: nobody looks for the trail in the log then."""
    file = settings.path(settings.host.log.audit)
    if file is not None and not os.access(file if os.access(file, os.F_OK) else file.parent, os.W_OK):
        yield f"log.audit: {file} can't be written, so the audit trail goes to the log; let the host's user write it"


class CommandAudit(Audit):
    """Writes what a command does: into the file, else into the log of the host that runs, else on standard error."""

    def note(self, what: str, outcome: str, **fields: Any) -> None:
        """Write an event, with the system's user who gave the command."""
        super().note(what, outcome, **{"by": user_name(os.getuid()), "where": "command line", **fields})

    def write(self, event: Mapping[str, Any]) -> None:
        """Write an event that is complete."""
        if self._file is None:
            try:
                send_command(self._data_dir, "audit", event=dict(event))
            except NotRunning:
                with suppress_events("audit"):  # by the command itself, beside this
                    super().write(event)
            return
        super().write(event)


def command_audit(settings: Settings) -> CommandAudit:
    """Return the audit trail for a command with some settings."""
    return CommandAudit(make_logger(settings.host.log), settings.data_dir, settings.path(settings.host.log.audit))

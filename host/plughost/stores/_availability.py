"""Whether a store can be used: opens it, notices its loss and its recovery, and logs each change."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from plughost.stores._errors import (
    Busy,
    ConnectionLost,
    Damaged,
    Exhausted,
    Forbidden,
    Full,
    OutcomeUnknown,
    Refused,
    SetupError,
    StoreError,
    Unavailable,
    translate,
)
from plughost.stores._opening import StoreHandle
from plughost.stores._sessions import Mode

if TYPE_CHECKING:
    from plughost.stores._databases import AdminSession
    from plughost.stores._migrations import MigrationTarget
    from plughost.stores._pool import Gate

_POLL_INTERVAL: Final = 0.02
_WARNING_INTERVAL: Final = 60.0


class Loss(NamedTuple):
    """Why a store can't be used: the latest problem, and how operations deal with it."""

    problem: StoreError
    wait_until: float  # operations wait for its end until then, and fail at once afterwards
    retry_at: float  # from then on, one of them first tries again


class Availability:
    """Opens a store, and knows whether its database is available.

    It is lost if it has a loss, else open if it has a handle, else closed. `opened`, `record_loss` and `close` alone
    change that.

    Attributes:
        handle: The open store. None before it is opened. After a loss, what it was before, perhaps closed since.
        loss: Why it can't be used. None while it can, and before it is opened.
        is_reported: Whether the log says that it is not available, and not yet that it is back.
        failure: Since when operations fail though the database is there, as on a full disk, and in which mode.
    """

    def __init__(self, target: MigrationTarget, gate: Gate) -> None:
        """Open nothing yet."""
        self._target, self._database, self._tables = target, target.database, target.store.tables
        self._gate, self._label, self._patience = gate, self._database.label, self._database.config.patience
        self._logger = target.logger.bind(place=self._database.config.place)
        self.handle: StoreHandle | None = None
        self.loss: Loss | None = None
        self.is_reported = False
        self.failure: tuple[float, Mode] | None = None
        self._opened_at = self._next_warning_at = 0.0
        self._reported_reason: str | None = None  # reset once the outage lasts
        self._lock = threading.Lock()  # for each change of the above, except the next warning's time
        self._turn = threading.Lock()  # of the thread that opens or probes the store

    def opened(self, handle: StoreHandle, loss: Loss | None) -> StoreHandle | None:
        """Record that the store is open, and a loss over. None if it was lost again or closed for good meanwhile."""
        with self._lock:
            if self.loss is loss and not self._gate.is_closed:
                self.handle, self.loss, self._opened_at = handle, None, time.monotonic()
                return handle
        if handle is not self.handle:
            handle.close()
        return None

    def close(self) -> None:
        """Close the store, to be opened again."""
        with self._lock:
            # What is opened after a loss is compared with what was there before.
            handle, self.handle = self.handle, None if self.loss is None else self.handle
        if handle is not None:
            handle.close()

    def ensure_open(self, deadline: float) -> StoreHandle:
        """Return the open store, opened or recovered. Wait until the deadline, or `patience` seconds after a loss."""
        while True:
            if self._turn.acquire(blocking=self.loss is None):
                try:
                    if (handle := self._recover(deadline)) is not None:
                        return handle
                finally:
                    self._turn.release()
            loss = self.loss
            if loss is not None:
                if not isinstance(loss.problem, Unavailable) or time.monotonic() >= min(deadline, loss.wait_until):
                    raise type(loss.problem)(str(loss.problem))  # a new one, since several threads may raise it
                time.sleep(_POLL_INTERVAL)

    def _recover(self, deadline: float) -> StoreHandle | None:
        """Open the store, or probe it. None if it doesn't answer, or if it is too early to try again."""
        self._gate.check()
        before, loss = self.handle, self.loss
        if loss is None and before is not None:
            return before
        if loss is not None and min(deadline, loss.wait_until) <= time.monotonic() < loss.retry_at:
            return None
        try:
            return self.opened(self._reopen(before, loss, deadline), loss)
        except Exception as error:
            found = translate(error, self._label)
            if found is None:
                raise
            if type(found) in {StoreError, Forbidden}:  # the database rejects a statement of the host's own
                found = SetupError(str(found))
            self.record_loss(found, at_opening=True)
            return None

    def _reopen(self, before: StoreHandle | None, loss: Loss | None, deadline: float) -> StoreHandle:
        if before is not None:
            is_damaged = loss is not None and isinstance(loss.problem, Damaged) and self._database.exists()
            if not is_damaged and not before.sessions.closed.is_set():
                before.sessions.probe(deadline=deadline)  # and of a missing file, nothing is made in its place
                return before
            # Another file may be there now: nobody may use the old one once the new one is open.
            while not before.sessions.close():
                if time.monotonic() > deadline:
                    raise Damaged(f"The {self._label} is still in use by operations that began before.")
                time.sleep(_POLL_INTERVAL)
            before.close()
            with self._database.administer() as db:
                if self._schema_number(db) < before.schema:
                    raise Damaged(f"The {self._label} was replaced by something else: put it or a backup back.")
                self._check_tables(db, before.columns)
        handle = StoreHandle(self._target)
        handle.commit()
        return handle

    def classify(self, error: Exception, mode: Mode, used: StoreHandle | None) -> StoreError:
        """Return the store error that an operation with a handle failed with, and record it. Raise any other error."""
        found = translate(error, self._label, reads=mode is Mode.READ)
        if found is None:
            raise error
        if type(found) in {StoreError, Forbidden}:
            # A closed store was replaced by one of newer code, which may have migrated it.
            found = Unavailable(str(found)) if self._gate.is_closed else self._explain(found, used)
        elif type(found) in {Unavailable, Full} and self.loss is None and not self._gate.is_closed:
            found = self._record_failure(found, mode)
        if isinstance(found, (ConnectionLost, Damaged, OutcomeUnknown)):
            self.record_loss(found)
        if isinstance(found, Damaged) and used is not None:
            with suppress(StoreError):  # so that it can be restored; a missing file stays open, as its last copy
                if self._database.exists() and used.sessions.close():
                    used.close()
        return found

    def record_loss(self, error: StoreError, *, at_opening: bool = False) -> None:
        """Record that the store is lost. If this was found `at_opening`, put off the next attempt to open it."""
        is_away = isinstance(error, (ConnectionLost, OutcomeUnknown, Refused))
        reason, event, now = str(error), None, time.monotonic()
        with self._lock:
            loss, waits = self.loss, is_away and self.handle is not None
            if loss is None:
                wait_until, retry_at = now + self._patience if waits else 0.0, 0.0
                if not self.is_reported or not is_away or self._is_stable():
                    event, self.is_reported = "the store is not available", True
                    self._reported_reason = reason if waits else None
            else:
                _, wait_until, retry_at = loss
                if at_opening and now >= wait_until:
                    event = "the store is still not available" if self._reported_reason not in {None, reason} else None
                    self._reported_reason = None
            # Not ConnectionLost, which would count as the loss of one more connection.
            problem = (Unavailable if is_away else type(error))(reason)
            self.loss = Loss(problem, wait_until, now + self._database.config.pause if at_opening else retry_at)
        if event is not None:
            self._logger.warning(event, reason=reason)

    def _record_failure(self, error: StoreError, mode: Mode) -> StoreError:
        """Record a failure for an external reason while the database is there. Return the reason."""
        handle = self.handle
        if handle is not None and mode is not Mode.READ:
            table = handle.sessions.exhausted_table()
            if table is not None:
                return Exhausted(f"The {self._label} has no id left for a new row of its table {table}")
            handle.sessions.disconnect()  # an idle connection may keep a default that is read-only
        with self._lock:
            if self.failure is not None:
                return error
            self.failure = time.monotonic(), min(mode, Mode.WRITE)
        what = "the store can't be read" if mode is Mode.READ else "the store can't be written"
        self._logger.error(what, reason=str(error))
        return error

    def record_success(self, mode: Mode) -> None:
        """Record a success. To save time, callers skip this unless a loss `is_reported` or there is a `failure`.

        An answer does not prove that the store is back: the next statement may lose the connection again. So the
        health check waits for `patience` seconds without another loss. An operation that succeeded is proof enough.

        On a full disk, a DELETE or a small row may succeed. So a failed write is over once there is room for a table.
        A failed health check is over once it succeeds: SQLite still writes to an open file that became read-only.
        """
        with self._lock:  # it may be lost again, or another thread may have logged it
            is_back = self.is_reported and self.loss is None and (mode is not Mode.PROBE or self._is_stable())
            if is_back:
                self.is_reported = False
        if is_back:
            self._logger.info("the store is back")
        failure, handle = self.failure, self.handle
        if failure is None or handle is None or (mode is Mode.READ and failure[1] is not mode):
            return
        if failure[1] is Mode.WRITE:
            if not self._can_create_table(handle) and mode is Mode.PROBE:
                return
        elif failure[1] is Mode.PROBE and mode is not Mode.PROBE:
            handle.sessions.probe(writes=True)
        with self._lock:
            if self.failure is not failure:  # another thread logged it
                return
            self.failure = None
        self._logger.warning("the store is well again", seconds=round(time.monotonic() - failure[0], 1))

    def _is_stable(self) -> bool:
        """Return whether it stayed available for `patience` seconds after it was recovered."""
        return time.monotonic() > self._opened_at + self._patience

    def log_refusal(self, error: StoreError) -> None:
        """Log, at most once a minute, why an operation waited in vain, lacks an id, is forbidden or can't connect.

        A loss is logged when it is recorded.
        """
        if self.loss is not None or not isinstance(error, (Busy, Exhausted, SetupError, Refused)):
            return
        if time.monotonic() >= self._next_warning_at:
            self._next_warning_at = time.monotonic() + _WARNING_INTERVAL
            kinds = {
                Exhausted: "the store has no ids left",
                Forbidden: "the store forbids a statement",
                SetupError: "the store can't connect",
            }
            self._logger.warning(kinds.get(type(error), "the store is busy"), reason=str(error))

    def _can_create_table(self, handle: StoreHandle) -> bool:
        """Create and drop a table where the store's are, to see that there is room. False if that is forbidden."""
        session = handle.sessions.session(Mode.WRITE, time.monotonic() + self._patience)
        try:
            for clause in handle.sessions.tablespace_clauses(session, self._tables):
                session.rows(f"CREATE TABLE plughost_room {clause} AS SELECT 1 AS room")
                session.rows("DROP TABLE plughost_room")
            session.commit()
            return True
        except Exception as error:
            if type(translate(error, self._label)) not in {StoreError, Forbidden}:
                raise
            return False
        finally:
            session.undo()

    def _explain(self, error: StoreError, used: StoreHandle | None) -> StoreError:
        """Return why an operation failed that seems to be defective: newer code, damage, a loss, or its own error."""
        handle = self.handle
        try:
            if handle is not None:
                handle.sessions.probe()
                with self._database.administer() as db:
                    if self._schema_number(db) > handle.schema:
                        return Unavailable(f"The {self._label} was migrated by newer code: {error}")
                    self._check_tables(db, handle.columns)
        except Exception as found:  # noqa: BLE001 - else the operation's own error tells more
            if isinstance(found, Damaged):
                return found
        # Another thread may have found the damage, and closed the store. It may be mended already.
        loss = self.loss
        if loss is not None and isinstance(loss.problem, Damaged):
            return Damaged(str(loss.problem))
        return error if self.handle is used else Unavailable(f"The {self._label} was opened anew meanwhile: {error}")

    def _schema_number(self, db: AdminSession) -> int:
        """Return the number of the present schema. `Damaged` if a privilege was revoked."""
        db.check_privileges(self._tables, writes=not self._database.config.read_only)
        return db.schema_number()

    def _check_tables(self, db: AdminSession, columns: Mapping[str, frozenset[str]]) -> None:
        """Raise `Damaged` if a table, or a column that it had, is gone."""
        for table, expected in columns.items():
            present = db.columns(table)
            for column in sorted(expected - present):
                missing = f"column {column} in its table {table}" if present else f"table {table}"
                raise Damaged(f"The {self._label} has no {missing} any more: put it or a backup back.")

"""Whether a store can be used: opens it, notices its loss and its recovery, and logs each change."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from plughost.stores._errors import (
    Busy,
    ConnectionLost,
    Damaged,
    Exhausted,
    Forbidden,
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


class Availability:
    """Opens a store, and knows whether its database is available.

    Attributes:
        handle: The open store; None before it is opened. After a loss, what it was before, perhaps closed since.
        problem: Why it can't be used; None while it can, and before it is opened.
        is_lost: Whether it was lost, and has not yet stayed available for long enough.
        failure: Since when operations fail though the database is there, as on a full disk, and in which mode.
    """

    def __init__(self, target: MigrationTarget, gate: Gate) -> None:
        """Open nothing yet."""
        self._target, self._database, self._tables = target, target.database, target.store.tables
        self._gate = gate
        self._logger = target.logger.bind(place=self._database.config.place)
        self.handle: StoreHandle | None = None
        self.problem: StoreError | None = None
        self.is_lost = False
        self.failure: tuple[float, Mode] | None = None
        self._wait_until = self._retry_at = self._next_warning_at = self._recovered_at = 0.0
        self._lost_reason: str | None = None  # reset once the outage lasts
        self._open_lock = threading.Lock()
        self._state_lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether it is open, and was not lost since."""
        return self.handle is not None and self.problem is None

    def close(self) -> None:
        """Close the store, to be opened again."""
        with self._open_lock:
            handle, self.handle = self.handle, None
        if handle is not None:
            handle.close()

    def ensure_open(self, deadline: float) -> StoreHandle:
        """Return the open store, opened or recovered; wait until the deadline, or `patience` seconds after a loss."""
        while True:
            if self._open_lock.acquire(blocking=self.problem is None):
                try:
                    handle = self._recover(deadline)
                finally:
                    self._open_lock.release()
                if handle is not None:
                    return handle
            if time.monotonic() >= min(deadline, self._wait_until):
                self._raise_problem()
            time.sleep(_POLL_INTERVAL)

    def _recover(self, deadline: float) -> StoreHandle | None:
        """Open the store, or probe it; None if it doesn't answer, or if it is too early to try again."""
        self._gate.check()
        now = time.monotonic()
        if self.problem is None and self.handle is not None:
            return self.handle
        waiting = now < min(deadline, self._wait_until)
        if self.problem is not None and not waiting and now < self._retry_at:
            return None
        try:
            self.handle = self._reopen(deadline)
        except Exception as error:
            found = translate(error, self._database.label)
            if found is None:
                raise
            if type(found) in {StoreError, Forbidden}:  # the database rejects a statement of the host's own
                found = SetupError(str(found))
            self.record_open_failure(found)
            if not isinstance(found, Unavailable):
                self._raise_problem()
            return None
        self._recovered_at = time.monotonic()
        self.problem = None
        return self.handle

    def _reopen(self, deadline: float) -> StoreHandle:
        before = self.handle
        if before is not None:
            is_damaged = isinstance(self.problem, Damaged) and self._database.exists()
            if not is_damaged and not before.sessions.closed.is_set():
                before.sessions.probe(deadline=deadline)  # and of a missing file, nothing is made in its place
                return before
            # Another file may be there now: nobody may use the old one once the new one is open.
            if not before.sessions.close():
                raise Damaged(f"The {self._database.label} is still in use by operations that began before.")
            before.close()
            with self._database.administer() as db:
                if self._schema_number(db) < before.schema:
                    message = f"The {self._database.label} was replaced by something else: put it or a backup back."
                    raise Damaged(message)
                self._check_tables(db, before.columns)
        handle = StoreHandle(self._target)
        handle.commit()
        return handle

    def classify(self, error: Exception, mode: Mode) -> StoreError:
        """Return the store error that an operation failed with, and record it; raise any other error."""
        found = translate(error, self._database.label, reads=mode is Mode.READ)
        if found is None:
            raise error
        if type(found) in {StoreError, Forbidden}:
            # A closed store was replaced by one of newer code, which may have migrated it.
            found = Unavailable(str(found)) if self._gate.is_closed else self._explain(found)
        elif type(found) is Unavailable and self.is_open and not self._gate.is_closed:
            found = self._record_failure(found, mode)
        if isinstance(found, (ConnectionLost, Damaged, OutcomeUnknown)):
            self.record_loss(found)
        return found

    def record_open_failure(self, error: StoreError) -> None:
        """Record that the store can't be opened, and put off the next attempt."""
        self.record_loss(error)
        now = time.monotonic()
        self._retry_at = now + self._database.config.pause
        lost_reason = self._lost_reason
        if lost_reason is not None and now >= self._wait_until:
            self._lost_reason = None
            if lost_reason != str(error):
                self._logger.warning("the store is still not available", reason=str(error))

    def record_loss(self, error: StoreError) -> None:
        """Record that the store is lost; the next operation probes it first."""
        lost = isinstance(error, (ConnectionLost, OutcomeUnknown, Refused))
        with self._state_lock:
            waits = lost and self.handle is not None
            is_news = not self.is_lost or (self.problem is None and (not lost or self._is_stable()))
            if self.problem is None:
                self._wait_until = time.monotonic() + self._database.config.patience if waits else 0.0
                self._retry_at = 0.0
            # Not ConnectionLost, which would count as the loss of one more connection.
            self.problem = (Unavailable if lost else type(error))(str(error))
            self.is_lost = True
            if is_news:
                self._lost_reason = str(error) if waits else None
        if is_news:
            self._logger.warning("the store is not available", reason=str(error))

    def _raise_problem(self) -> NoReturn:
        """Raise the problem as a new exception, since several threads may raise it."""
        problem = self.problem or Unavailable(f"The {self._database.label} was just lost.")
        raise type(problem)(str(problem))

    def _record_failure(self, error: StoreError, mode: Mode) -> StoreError:
        """Record a failure for an external reason while the database is there; return the reason."""
        handle = self.handle
        if handle is not None and mode is not Mode.READ:
            table = handle.sessions.exhausted_table()
            if table is not None:
                return Exhausted(f"The {self._database.label} has no id left for a new row of its table {table}")
            handle.sessions.disconnect()  # an idle connection may keep a default that is read-only
        with self._state_lock:
            if self.failure is not None:
                return error
            self.failure = time.monotonic(), min(mode, Mode.WRITE)
        what = "the store can't be read" if mode is Mode.READ else "the store can't be written"
        self._logger.error(what, reason=str(error))
        return error

    def record_success(self, mode: Mode) -> None:
        """Record a success; to save time, callers skip this unless the store `is_lost` or has a `failure`.

        An answer does not prove that the store is back: the next statement may lose the connection again. So the
        health check waits for `patience` seconds without another loss. An operation that succeeded is proof enough.

        On a full disk, a DELETE or a small row may succeed. So a failed write is over once there is room for a table.
        A failed health check is over once it succeeds: SQLite still writes to an open file that became read-only.
        """
        with self._state_lock:  # it may be lost again, or another thread may have logged it
            is_back = self.is_lost and self.problem is None and (mode is not Mode.PROBE or self._is_stable())
            if is_back:
                self.is_lost = False
        if is_back:
            self._logger.info("the store is back")
        failure = self.failure
        if failure is None or self.handle is None or (mode is Mode.READ and failure[1] is not mode):
            return
        if failure[1] is Mode.WRITE:
            if not self._can_create_table(self.handle) and mode is Mode.PROBE:
                return
        elif failure[1] is Mode.PROBE and mode is not Mode.PROBE:
            self.handle.sessions.probe(writes=True)
        with self._state_lock:
            if self.failure is not failure:  # another thread logged it
                return
            self.failure = None
        seconds = round(time.monotonic() - failure[0], 1)
        self._logger.warning("the store is well again", seconds=seconds)

    def _is_stable(self) -> bool:
        """Return whether it stayed available for `patience` seconds after it was recovered."""
        return time.monotonic() > self._recovered_at + self._database.config.patience

    def log_refusal(self, error: StoreError) -> None:
        """Log, at most once a minute, why an operation waited in vain, lacks an id or is forbidden."""
        if isinstance(error, (Busy, Exhausted, Forbidden, Refused)) and time.monotonic() >= self._next_warning_at:
            self._next_warning_at = time.monotonic() + _WARNING_INTERVAL
            kinds = {Exhausted: "the store has no ids left", Forbidden: "the store forbids a statement"}
            self._logger.warning(kinds.get(type(error), "the store is busy"), reason=str(error))

    def _can_create_table(self, handle: StoreHandle) -> bool:
        """Create and drop a table where the store's are, to see that there is room; False if that is forbidden."""
        session = handle.sessions.session(Mode.WRITE, time.monotonic() + self._database.config.patience)
        try:
            for clause in handle.sessions.tablespace_clauses(session, self._tables):
                session.rows(f"CREATE TABLE plughost_room {clause} AS SELECT 1 AS room")
                session.rows("DROP TABLE plughost_room")
            session.commit()
            return True
        except Exception as error:
            if type(translate(error, self._database.label)) not in {StoreError, Forbidden}:
                raise
            return False
        finally:
            session.undo()

    def _explain(self, error: StoreError) -> StoreError:
        """Return why an operation failed that seems to be defective: newer code, damage, a loss, or its own error."""
        try:
            if self.handle is not None:
                self.handle.sessions.probe()
                with self._database.administer() as db:
                    if self._schema_number(db) > self.handle.schema:
                        return Unavailable(f"The {self._database.label} was migrated by newer code: {error}")
                    self._check_tables(db, self.handle.columns)
        except Exception as found:  # noqa: BLE001 - else the operation's own error tells more
            if isinstance(found, Damaged):
                return found
        # Another thread may have found the damage, and closed the store.
        return Damaged(str(self.problem)) if isinstance(self.problem, Damaged) else error

    def _schema_number(self, db: AdminSession) -> int:
        """Return the number of the present schema; `Damaged` if a privilege was revoked."""
        db.check_privileges(self._tables, writes=not self._database.config.read_only)
        return db.schema_number()

    def _check_tables(self, db: AdminSession, columns: Mapping[str, frozenset[str]]) -> None:
        """Raise `Damaged` if a table, or a column that it had, is gone."""
        missing = [f"table {table}" for table in self._tables if not db.has_table(table)]
        for table, expected in columns.items():
            missing += [f"column {column} in its table {table}" for column in sorted(expected - db.columns(table))]
        if missing:
            raise Damaged(f"The {self._database.label} has no {missing[0]} any more: put it or a backup back.")

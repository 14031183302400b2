"""The only connection of a SQLite store that writes, and the queue for it.

Single statements that wait for it at the same time share a commit: one of their threads runs all of them in one
transaction, and each is acknowledged once the transaction is on disk. A statement that fails undoes only itself.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from plughost.stores._errors import Busy, OutcomeUnknown, StoreError, translate
from plughost.stores._pool import FairSemaphore, Waiter

if TYPE_CHECKING:
    from plughost.stores._sqlite_files import SQLiteFile

T = TypeVar("T")

Statement = Callable[[sqlite3.Connection], T]
"""Runs one statement, and returns its result."""

_WAIT_THRESHOLD: Final = 0.01


class _Write(Waiter):
    """A place in the queue, for a transaction or for a single statement."""

    __slots__ = ("failure", "is_done", "result", "statement")

    def __init__(self, statement: Statement[Any] | None = None) -> None:
        self.statement = statement
        self.is_done = False
        self.result: Any = None
        self.failure: BaseException | None = None


class Writer:
    """The only connection that writes, and the queue for it, in order of arrival."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], file: SQLiteFile, patience: float, label: str
    ) -> None:
        """Open nothing yet. After each commit, the file is verified before anything is acknowledged."""
        self.slots: FairSemaphore = FairSemaphore(1, f"The {label} is busy: other writers held it for {patience:g} s.")
        self._connect, self._file, self._patience, self._label = connect, file, patience, label
        self._closed = False
        self._connection: sqlite3.Connection | None = None

    def single(self, deadline: float, statement: Statement[T]) -> T:
        """Run one statement and commit it, together with those that other threads queued meanwhile."""
        write = _Write(statement)
        self.slots.acquire(write, deadline)  # or another thread runs it
        if not write.is_done:
            batch = [write]
            try:
                connection = self._begin(deadline)
                with self.slots.lock:
                    queue = self.slots.queue
                    while queue and queue[0].statement is not None:
                        batch.append(queue.popleft())
                self._run_batch(connection, batch)
            except BaseException as error:  # noqa: BLE001 - each thread raises its own below
                for each in batch:
                    each.failure = error
            finally:
                for each in batch[1:]:
                    each.is_done = True
                    each.granted.release()
                self._release()
        if write.failure is not None:
            raise write.failure
        result: T = write.result
        return result

    def begin(self, deadline: float) -> sqlite3.Connection:
        """Begin a transaction of the caller, and return its connection. `end` must follow."""
        self.slots.acquire(_Write(), deadline)
        try:
            return self._begin(deadline)
        except BaseException:
            self._release()
            raise

    def end(self, *, commit: bool) -> None:
        """Commit or roll back the transaction of the caller."""
        connection = self._connection
        assert connection is not None
        try:
            if commit and not connection.in_transaction:
                raise StoreError(f"{self._label}: the transaction was ended from inside; nothing of it was kept")
            if commit:
                self._commit(connection)
            else:
                self._roll_back(connection)
        finally:
            self._release()

    def close(self) -> None:
        """Close the connection once it is not in use."""
        self._closed = True
        with self.slots.lock:
            if not self.slots.in_use and self._connection is not None:
                self._file.checkpoint_if_replaced(self._connection)
                self._disconnect()

    def _release(self) -> None:
        self.slots.release()
        if self._closed:
            self.close()

    def _begin(self, deadline: float) -> sqlite3.Connection:
        is_new = self._connection is None
        if self._connection is None:
            self._file.refuse_read_only()
            self._connection = self._connect()
        else:
            self._file.verify_to_write()
        connection = self._connection
        left = deadline - time.monotonic()
        waited = left < 0.99 * self._patience
        if waited:  # another process may hold the file: nobody waits for that as long once more
            connection.execute(f"PRAGMA busy_timeout = {max(0, int(left * 1000))}")
        begun = time.monotonic()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if not isinstance(translate(error, self._label), Busy):
                self._disconnect()
            raise
        finally:
            took = time.monotonic() - begun
            if took > _WAIT_THRESHOLD:  # another process wrote
                self.slots.waits.add(took)
            if waited and self._connection is not None:
                connection.execute(f"PRAGMA busy_timeout = {int(self._patience * 1000)}")
        if is_new:
            self._file.track_log()
        return connection

    def _run_batch(self, connection: sqlite3.Connection, batch: list[_Write]) -> None:
        """Run single statements in the open transaction, and commit it."""
        for write in batch:
            assert write.statement is not None
            try:
                write.result = write.statement(connection)
            except Exception as error:  # noqa: BLE001 - its own thread raises it
                write.failure = error
            if not connection.in_transaction:
                # SQLite rolled everything back, as when the disk is full: run the others again, without this one.
                self._run_separately(connection, [each for each in batch if each is not write])
                return
        try:
            self._commit(connection)
        except sqlite3.IntegrityError:
            if len(batch) == 1:
                raise
            self._run_separately(connection, batch)  # the error doesn't tell whose constraint failed

    def _run_separately(self, connection: sqlite3.Connection, batch: list[_Write]) -> None:
        """Run each statement in a transaction of its own."""
        for write in batch:
            write.failure = None
            try:
                connection.execute("BEGIN IMMEDIATE")
                self._run_batch(connection, [write])
            except Exception as error:  # noqa: BLE001 - its own thread raises it
                write.failure = error

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(connection)
            name = getattr(error, "sqlite_errorname", "")
            # If a quota leaves no room for the log, the log lacks the transaction's end.
            if name.startswith("SQLITE_IOERR") and name != "SQLITE_IOERR_WRITE":
                message = f"{self._label}: the disk failed at the commit, which may have been kept or not: {error}"
                raise OutcomeUnknown(message) from error
            raise
        try:
            self._file.verify_to_write()
        except StoreError as error:  # it is damaged, or nobody can tell, as without a free descriptor
            message = f"{error}; what was written at that moment is in the write-ahead log, and may be lost"
            raise OutcomeUnknown(message) from error

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            connection.rollback()
        except sqlite3.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._file.forget_log()
            connection.close()

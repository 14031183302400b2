"""The one connection of a SQLite store that writes, and the queue for it.

Single statements that wait for it at the same time share a commit: one of their threads runs all of them in one
transaction, and each is acknowledged once that is on the disk. A statement that fails undoes itself alone.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from plughost.stores._connections import Turn, Turns
from plughost.stores._errors import Busy, Damaged, OutcomeUnknown, StoreError, translate

if TYPE_CHECKING:
    from plughost.stores._sqlite_files import SQLiteFile

T = TypeVar("T")

Statement = Callable[[sqlite3.Connection], T]
"""Runs one statement, and returns what came of it."""

_MOST_TOGETHER: Final = 64
_NOTICED: Final = 0.01


class _Turn(Turn):
    """A place in the queue for the connection that writes: of a transaction, or of a single statement."""

    __slots__ = ("failure", "result", "settled", "statement")

    def __init__(self, statement: Statement[Any] | None = None) -> None:
        self.statement = statement
        self.settled = False
        self.result: Any = None
        self.failure: BaseException | None = None


class Writer:
    """The one connection that writes, and the queue for it, in order of arrival."""

    def __init__(
        self, open_one: Callable[[], sqlite3.Connection], file: SQLiteFile, patience: float, label: str
    ) -> None:
        """Open nothing yet; the file is verified after each commit, before anything is acknowledged."""
        self.turns = Turns(1, f"The {label} is busy: other writers held it for {patience:g} s.")
        self._open_one, self._file, self._patience, self._label = open_one, file, patience, label
        self._closed = False
        self._connection: sqlite3.Connection | None = None

    def single(self, deadline: float, statement: Statement[T]) -> T:
        """Run one statement and commit it, together with those of others that came meanwhile."""
        turn = _Turn(statement)
        self.turns.begin(turn, deadline)  # or somebody settles it
        if not turn.settled:
            together = [turn]
            try:
                connection = self._begin(deadline)
                with self.turns.lock:
                    queue = self.turns.queue
                    while queue and queue[0].statement is not None and len(together) <= _MOST_TOGETHER:
                        together.append(queue.popleft())
                self._run_all(connection, together)
            except BaseException as error:  # noqa: BLE001 - raised below, by each
                for each in together:
                    each.failure = error
            finally:
                for each in together[1:]:
                    each.settled = True
                    each.passed.release()
                self._pass_on()
        if turn.failure is not None:
            raise turn.failure
        result: T = turn.result
        return result

    def begin(self, deadline: float) -> sqlite3.Connection:
        """Return the connection in a transaction of the caller's own; `end` is to follow."""
        self.turns.begin(_Turn(), deadline)
        try:
            return self._begin(deadline)
        except BaseException:
            self._pass_on()
            raise

    def end(self, *, commit: bool) -> None:
        """End the transaction of the caller."""
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
            self._pass_on()

    def close(self) -> None:
        """Close the connection once nobody uses it."""
        self._closed = True
        with self.turns.lock:
            if not self.turns.used and self._connection is not None:
                self._file.leave(self._connection)
                self._drop()

    def _pass_on(self) -> None:
        self.turns.end()
        if self._closed:
            self.close()

    def _begin(self, deadline: float) -> sqlite3.Connection:
        is_new = self._connection is None
        if self._connection is None:
            self._connection = self._open_one()
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
                self._drop()
            raise
        finally:
            took = time.monotonic() - begun
            if took > _NOTICED:  # another process wrote
                self.turns.waits.add(took)
            if waited and self._connection is not None:
                connection.execute(f"PRAGMA busy_timeout = {int(self._patience * 1000)}")
        if is_new:
            self._file.follow_log()
        return connection

    def _run_all(self, connection: sqlite3.Connection, turns: list[_Turn]) -> None:
        """Run single statements in the transaction that was begun, and commit it."""
        for turn in turns:
            assert turn.statement is not None
            try:
                turn.result = turn.statement(connection)
            except Exception as error:  # noqa: BLE001 - its own thread raises it
                turn.failure = error
            if not connection.in_transaction:
                # SQLite undid all of it, as when the disk is full: the others are run again, without this one.
                self._run_each(connection, [each for each in turns if each is not turn])
                return
        try:
            self._commit(connection)
        except sqlite3.IntegrityError:
            if len(turns) == 1:
                raise
            self._run_each(connection, turns)  # it doesn't tell whose constraint failed

    def _run_each(self, connection: sqlite3.Connection, turns: list[_Turn]) -> None:
        """Run single statements each in a transaction of its own."""
        for turn in turns:
            turn.failure = None
            try:
                connection.execute("BEGIN IMMEDIATE")
                self._run_all(connection, [turn])
            except Exception as error:  # noqa: BLE001 - its own thread raises it
                turn.failure = error

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(connection)
            name = getattr(error, "sqlite_errorname", "")
            # Where a quota leaves no room for the log, the transaction's end is not in it.
            if name.startswith("SQLITE_IOERR") and name != "SQLITE_IOERR_WRITE":
                message = f"{self._label}: the disk failed at the commit, which may have been kept or not: {error}"
                raise OutcomeUnknown(message) from error
            raise
        try:
            self._file.verify_to_write()
        except Damaged as error:
            message = f"{error}; what was written at that moment is in the write-ahead log, and may be lost"
            raise OutcomeUnknown(message) from error

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            connection.rollback()
        except sqlite3.Error:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._file.leave_log()
            connection.close()

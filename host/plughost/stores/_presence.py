"""Whether a store is there: opening it, losing it, and finding it again, with a line in the log for each change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
from plughost.stores._sessions import Mode

if TYPE_CHECKING:
    import structlog

    from plughost.stores._databases import Administration, Database
    from plughost.stores._opening import Opened

_LOOK_AGAIN: Final = 0.02
_TELL_AGAIN: Final = 60.0


class Presence:
    """Knows whether a store's database is there, and opens the store when it is.

    Attributes:
        opened: The store, once it was opened; it may have been lost since.
        trouble: Why it can't be used; None where it can, or was not opened yet.
        away: Whether it was lost, and nothing has shown since that it stays.
        failing: Since when something fails though it is there, as on a full disk, and what; None where all succeeds.
    """

    def __init__(
        self,
        database: Database,
        open_store: Callable[[], Opened],
        refuse: Callable[[], None],
        logger: structlog.stdlib.BoundLogger,
        tables: Sequence[str] = (),
    ) -> None:
        """Open nothing yet; `refuse` raises where the store is not to be opened, `tables` are those that it has."""
        self.opened: Opened | None = None
        self.trouble: StoreError | None = None
        self.away = False
        self.failing: tuple[float, Mode] | None = None
        self._database, self._open, self._refuse, self._tables = database, open_store, refuse, tables
        self._logger = logger.bind(place=database.config.place)
        self._served: Opened | None = None  # before it was damaged
        self._wait_until = self._retry_at = self._tell_at = self._found_at = 0.0
        self._told: str | None = None  # how it was lost, until that lasts
        self._opening = threading.Lock()
        self._noting = threading.Lock()

    def release(self) -> None:
        """Close the store, to be opened again."""
        with self._opening:
            opened, self.opened = self.opened, None
        if opened is not None:
            opened.resources.close()

    def ready(self, deadline: float) -> Opened:
        """Return the open store, opened or found again; wait until the deadline, or `patience` after it was lost."""
        while True:
            if self._opening.acquire(blocking=self.trouble is None):
                try:
                    opened = self._recover(deadline)
                finally:
                    self._opening.release()
                if opened is not None:
                    return opened
            if time.monotonic() >= min(deadline, self._wait_until):
                self._raise_trouble()
            time.sleep(_LOOK_AGAIN)

    def _recover(self, deadline: float) -> Opened | None:
        """Open the store, or see whether it answers again; None where it doesn't, or it is too early to ask."""
        self._refuse()
        now = time.monotonic()
        if self.trouble is None and self.opened is not None:
            return self.opened
        waiting = now < min(deadline, self._wait_until)
        if self.trouble is not None and not waiting and now < self._retry_at:
            return None
        try:
            self.opened = self._open_again(deadline)
        except Exception as error:
            found = translate(error, self._database.label)
            if found is None:
                raise
            if type(found) in {StoreError, Forbidden}:  # the database refuses to let the store be looked into
                found = SetupError(str(found))
            self.fail(found)
            if not isinstance(found, Unavailable):
                self._raise_trouble()
            return None
        self._found_at = time.monotonic()
        self.trouble = None
        return self.opened

    def _open_again(self, deadline: float) -> Opened:
        opened = self.opened
        if opened is not None and not isinstance(self.trouble, Damaged):
            opened.sessions.look(deadline=deadline)
            return opened
        if opened is not None and self._database.exists():
            # Another file may be there now, so nobody may use the old one when that is opened.
            if not opened.sessions.close():
                raise Damaged(f"The {self._database.label} is still in use by operations that began before.")
            self._served, self.opened = opened, None
            opened.resources.close()
        if self._served is not None:
            with self._database.administer() as db:
                if self._schema_number(db) < self._served.schema:
                    message = f"The {self._database.label} was replaced by something else: put it or a backup back."
                    raise Damaged(message)
                self._look_for_tables(db, self._served.columns)
        return self._open()

    def fail(self, error: StoreError) -> None:
        """Take note that the store can't be opened, and don't try again at once."""
        self.note(error)
        now = time.monotonic()
        self._retry_at = now + self._database.config.pause
        told = self._told
        if told is not None and now >= self._wait_until:
            self._told = None
            if told != str(error):  # what keeps it away is not what cut its connections
                self._logger.warning("the store is still not available", reason=str(error))

    def note(self, error: StoreError) -> None:
        """Take note that the store is lost: whoever comes next sees first whether it answers at all."""
        lost = isinstance(error, (ConnectionLost, OutcomeUnknown, Refused))
        with self._noting:
            waits = lost and self.opened is not None
            first = not self.away or (self.trouble is None and (not lost or self._stays()))
            if self.trouble is None:
                self._wait_until = time.monotonic() + self._database.config.patience if waits else 0.0
                self._retry_at = 0.0
            # Not ConnectionLost, which would stand for yet another connection that broke.
            self.trouble = (Unavailable if lost else type(error))(str(error))
            self.away = True
            if first:
                self._told = str(error) if waits else None
        if first:
            self._logger.warning("the store is not available", reason=str(error))

    def _raise_trouble(self) -> NoReturn:
        """Raise the trouble as an exception of its own, since several threads may."""
        trouble = self.trouble or Unavailable(f"The {self._database.label} was just lost.")
        raise type(trouble)(str(trouble))

    def failed(self, error: StoreError, mode: Mode) -> StoreError:
        """Take note that something failed for a reason outside of it, though the store is there; return the reason."""
        opened = self.opened
        if opened is not None and mode is not Mode.READ:
            spent = opened.sessions.spent()
            if spent is not None:
                return Exhausted(f"The {self._database.label} has no id left for a new row of its table {spent}")
            opened.sessions.refused()
        with self._noting:
            if self.failing is not None:
                return error
            self.failing = time.monotonic(), min(mode, Mode.WRITE)
        what = "the store can't be read" if mode is Mode.READ else "the store can't be written"
        self._logger.error(what, reason=str(error))
        return error

    def succeeded(self, mode: Mode) -> None:
        """Take note that something succeeded; who is quick calls it only where the store is `away` or `failing`.

        It is not back when it answers: the next statement may cost the connection again, and so on. So the health check
        waits for `patience` seconds without another loss; an operation that succeeded has seen enough.

        On a full disk whatever deletes succeeds, and so may a small row: that is over once there is room for a table.
        What the health check found is over once it finds it no more: SQLite writes on to a read-only file that is open.
        """
        if self.away and self._is_back(mode):
            self._logger.info("the store is back")
        failing = self.failing
        if failing is None or self.opened is None or (mode is Mode.READ and failing[1] is not mode):
            return
        if failing[1] is Mode.WRITE:
            if not self._finds_room(self.opened) and mode is Mode.LOOK:
                return
        elif failing[1] is Mode.LOOK and mode is not Mode.LOOK:
            self.opened.sessions.look(writes=True)
        with self._noting:
            if self.failing is not failing:  # another thread told it
                return
            self.failing = None
        seconds = round(time.monotonic() - failing[0], 1)
        self._logger.warning("the store is well again", seconds=seconds)

    def _is_back(self, mode: Mode) -> bool:
        with self._noting:
            if self.trouble is not None or not self.away:  # lost again, or another thread told it
                return False
            self.away = mode is Mode.LOOK and not self._stays()
            return not self.away

    def _stays(self) -> bool:
        """Return whether it was not lost again for long after it had been found."""
        return time.monotonic() > self._found_at + self._database.config.patience

    def held(self, error: Busy | Exhausted | Forbidden | Refused) -> None:
        """Tell, once in a while, what an operation waited for in vain, will always lack, or may not do."""
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + _TELL_AGAIN
            kinds = {Exhausted: "the store has no ids left", Forbidden: "the store forbids a statement"}
            self._logger.warning(kinds.get(type(error), "the store is busy"), reason=str(error))

    def _finds_room(self, opened: Opened) -> bool:
        """See that a table finds room where the store's are, and leave none; False where none may be made there."""
        session = opened.sessions.session(Mode.WRITE, time.monotonic() + self._database.config.patience)
        try:
            for where in opened.sessions.places(session, self._tables):
                session.rows(f"CREATE TABLE plughost_room {where} AS SELECT 1 AS room")
                session.rows("DROP TABLE plughost_room")
            session.commit()
        except Exception as error:
            if type(translate(error, self._database.label)) not in {StoreError, Forbidden}:
                raise
            return False
        else:
            return True
        finally:
            session.undo()

    def explain(self, error: StoreError) -> StoreError:
        """Return what is behind what looks like a defect of the operation: newer code, or what was damaged or lost."""
        try:
            if self.opened is not None:
                self.opened.sessions.look()
                with self._database.administer() as db:
                    if self._schema_number(db) > self.opened.schema:
                        return Unavailable(f"The {self._database.label} was migrated by newer code: {error}")
                    self._look_for_tables(db, self.opened.columns)
        except Exception as found:  # noqa: BLE001 - unless that is it, the operation's own error tells more
            if isinstance(found, Damaged):
                return found
        # Another thread may have found it out, and closed the store.
        return Damaged(str(self.trouble)) if isinstance(self.trouble, Damaged) else error

    def _schema_number(self, db: Administration) -> int:
        """Return the number of the schema that is there; `Damaged` where a privilege was taken away."""
        db.check_privileges(self._tables, writes=not self._database.config.read_only)
        return db.schema_number()

    def _look_for_tables(self, db: Administration, columns: Mapping[str, frozenset[str]]) -> None:
        """See that the tables are there, and the columns that they had."""
        lacks = [f"table {table}" for table in self._tables if not db.has_table(table)]
        for table, had in columns.items():
            lacks += [f"column {column} in its table {table}" for column in sorted(had - db.columns(table))]
        if lacks:
            raise Damaged(f"The {self._database.label} has no {lacks[0]} any more: put it or a backup back.")

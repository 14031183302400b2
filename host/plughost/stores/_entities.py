"""Pony on the sessions of a store. Only stores that declare entities import it.

The session, not Pony, opens connections, and begins and ends transactions. Pony's other loopholes are closed here:
entities of two stores in one operation, a read that writes, and objects that leave their session.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pony import orm
from pony.orm import asttranslation, core, dbapiprovider, decompiling, sqltranslation
from pony.utils import utils

from plughost.stores._config import SQLITE
from plughost.stores._errors import Busy, Duplicate, MisusedStore, SetupError, StoreError, translate
from plughost.stores._sessions import check_values

if TYPE_CHECKING:
    from plughost._api.declarations import Store
    from plughost.stores._config import StoreConfig
    from plughost.stores._databases import AdminSession, Sessions
    from plughost.stores._sessions import Session

T = TypeVar("T")

_PONY_TYPES: Final = (core.Entity, core.Query, core.QueryResult, core.SetInstance, core.Multiset, GeneratorType)

_keep_forever: Final = utils.get_codeobject_id
_watched: Final[dict[int, weakref.ref[CodeType]]] = {}  # code in Pony's caches, by its address


class Entities:
    """A store's entities, on Pony's database."""

    def __init__(self, store: Store, config: StoreConfig, db: AdminSession, sessions: Sessions | None) -> None:
        """Define the entities over `db`, for operations on `sessions`. `SetupError` if the factory raises."""
        assert store.entities is not None
        self._label = f"store {store.name}"
        self._optimistic = config.dialect != SQLITE
        self._database = _Database()
        self._decompiled: dict[int, CodeType] = {}
        pool = _SessionPool(self._label, db.sessions)
        try:
            with _PonySession(db, self._decompiled, optimistic=True):
                arguments = (str(config.path),) if config.path else ()
                self._database.bind(_provider_class(config.dialect), *arguments, pony_pool_mockup=pool)
            pool.sessions = sessions
            self._database.provider_name = "sqlite" if config.dialect == SQLITE else "postgres"
            self._entities = store.entities(self._database)
            self._database.generate_mapping(check_tables=False)
        except (Exception, SystemExit) as error:  # a plugin's own code may raise anything
            raise self._mapping_error(error) from error

    def check_tables(self, db: AdminSession) -> None:
        """Check that the tables have all columns of the entities, counting migrations that are not yet committed."""
        try:
            self._database.schema.check_tables(self._database.provider, db.connection)
        except Exception as error:  # Pony's, which wraps any of the driver's
            raise self._mapping_error(error) from error

    def _mapping_error(self, error: BaseException) -> StoreError:
        found = translate_pony_error(error, self._label)
        if found is not None and type(found) is not StoreError:
            return found
        columns = ", ".join(self._unsupported_columns(error))
        where = f" (of {columns})" if columns else ""
        return SetupError(f"the entities of the {self._label} do not fit its tables, or are wrong: {error}{where}")

    def _unsupported_columns(self, error: BaseException) -> Iterator[str]:
        """Yield the columns of a type that Pony can't store, since its message names none."""
        for entity in self._database.entities.values() if "No database converter" in str(error) else ():
            for attribute in entity._attrs_:
                if str(error).endswith(f" {attribute.py_type}"):
                    yield f"{entity.__name__}.{attribute.name}"

    def run_operation(
        self, session: Session, operation: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> T:
        """Run an operation with the entities as its first argument, on a session."""
        # On SQLite, optimistic checks are needless, since there is only one writer, and they would compare REALs with
        # decimals.
        try:
            with _PonySession(session, self._decompiled, optimistic=self._optimistic):
                result = operation(self._entities, *args, **kwargs)
                self._refuse_leak(operation, result)
            return result
        except Exception as error:
            found = translate_pony_error(error, self._label, reads=not session.writes)
            if found is None or found is error:
                raise
            raise found from error

    def _refuse_leak(self, operation: Callable[..., object], result: object) -> None:
        first = result[0] if isinstance(result, (list, tuple)) and result else result
        if isinstance(result, _PONY_TYPES) or isinstance(first, _PONY_TYPES):
            raise MisusedStore(
                f"{getattr(operation, '__qualname__', operation)} returned a {type(first).__name__} out of the "
                f"{self._label}, which is of no use once the session is over: return plain values, such as "
                "a list of tuples."
            )


class _Database(orm.Database):  # type: ignore[misc] # Pony has no types
    """Pony's database, which also gives access to rows."""

    @property
    def session(self) -> Session:
        """The session of the running operation, after the changes of its entities were sent to the database."""
        cache = self._get_cache()
        cache.prepare_connection_for_query_execution()
        session: Session = cache.db_session.session
        return session


class _PonySession(core.DBSessionContextManager):  # type: ignore[misc] # Pony has no types
    """A `db_session` on one session of a store. `decompiled` is the code that the store's database knows by address."""

    __slots__ = ("decompiled", "session")

    def __init__(self, session: Session, decompiled: dict[int, CodeType], *, optimistic: bool) -> None:
        writes = session.writes
        super().__init__(immediate=writes, optimistic=optimistic or not writes, strict=True)
        self.session, self.decompiled = session, decompiled


class _SessionPool:
    """Gives Pony the connection of its `db_session`'s session, and leaves ending it to that session."""

    def __init__(self, label: str, sessions: Sessions | None) -> None:
        self.label, self.sessions = label, sessions

    def session_of(self, found: Any) -> Any:
        """Return the session of a `db_session`, if it is one of this store's."""
        if isinstance(found, _PonySession) and found.session.sessions is self.sessions:
            return found.session
        mine = found.session.sessions.label if isinstance(found, _PonySession) else "db_session of Pony's own"
        message = f"Entities of the {self.label} were used in an operation of the {mine}: use its own run or read."
        raise MisusedStore(message)

    def connect(self) -> tuple[Any, bool]:
        return self.session_of(core.local.db_session).connection, False

    def disconnect(self) -> None:
        pass


class _SessionProvider:
    """A mixin for Pony's providers: it checks each session before its first query, and ends no transaction."""

    pool: _SessionPool

    def set_transaction_mode(self, connection: object, cache: Any) -> None:
        """Refuse another store's session, and a write in a session that only reads."""
        session = self.pool.session_of(cache.db_session)
        if cache.immediate and not session.writes:
            raise MisusedStore(
                f"A read of the {self.pool.label} was about to write: use run. (Pony takes db.execute, "
                "get_connection and anything after commit() for writing; db.session.rows is for reading.)"
            )
        cache.in_transaction = cache.immediate

    def execute(self, cursor: Any, sql: str, arguments: Any = None, returning_id: bool = False) -> Any:
        """Run a statement, after what the session sends before it."""
        values = arguments.values() if isinstance(arguments, dict) else arguments or ()
        check_values(tuple(values))
        # Outside of a `db_session`, Pony checks the tables over a connection for administration.
        before = core.local.db_session.session.before() if core.local.db_session is not None else ""
        return super().execute(cursor, before + sql, arguments, returning_id)  # type: ignore[misc] # a mixin; the provider comes after it

    def commit(self, connection: object, cache: Any = None) -> None:
        """Leave it to the session, at the end of the operation."""
        if cache is not None:
            cache.in_transaction = False

    def rollback(self, connection: object, cache: Any = None) -> None:
        """Roll back what the operation wrote so far."""
        if cache is not None:
            cache.in_transaction = False
            if cache.db_session.session.writes:
                cache.db_session.session.restart()

    drop = commit

    def release(self, connection: object, cache: Any = None) -> None:
        """Leave it to the session."""

    def should_reconnect(self, exc: BaseException) -> bool:
        """Return False: a new connection would go on in the middle of an operation."""
        return False


def _provider_class(dialect: str) -> Any:
    if dialect == SQLITE:
        from pony.orm.dbproviders.sqlite import SQLiteProvider as Provider  # noqa: PLC0415 - as the other
    else:
        from pony.orm.dbproviders.postgres import PGProvider as Provider  # noqa: PLC0415 - needs the driver
    return type("_Provider", (_SessionProvider, Provider), {})


def translate_pony_error(error: BaseException, label: str, *, reads: bool = False) -> StoreError | None:
    """Return the store error for an exception of Pony or a driver. None for any other exception.

    Pony wraps the driver's exception up to three times, differently for a flush, a commit and a query.
    """
    last: BaseException = _root_cause(error)
    found = translate(last, label, reads=reads)
    if found is not None:
        return found
    message = f"{label}: {last}"
    if isinstance(last, (core.CacheIndexError, core.TransactionIntegrityError)):
        return Duplicate(message)
    if isinstance(last, core.IsolationError):
        return Busy(message)  # another transaction changed the row since this session read it
    return StoreError(message) if isinstance(last, (core.OrmError, dbapiprovider.DBException)) else None


def _root_cause(error: Any) -> Any:
    """Return the innermost of the exceptions that Pony wrapped: the driver's."""
    several = getattr(error, "exceptions", None) if isinstance(error, core.TransactionError) else None
    inner = several[0][1] if several else getattr(error, "original_exc", None)
    return _root_cause(inner) if isinstance(inner, BaseException) else error


# Pony never releases code that it has decompiled. For methods of entities it does worse: it caches their translation by
# the address of the function, so that a new version's method at the address of an old one is translated as the old one.
# With the functions below, its caches forget code that a reload has replaced.


def _code_key(code: CodeType) -> int:
    """Return the key of code in Pony's caches: its address, which no other code gets while its database is open."""
    kept: dict[int, CodeType] | None = getattr(core.local.db_session, "decompiled", None)
    if kept is None:  # a plugin's own `orm.Database`
        return int(_keep_forever(code))
    key = id(code)
    kept[key] = code
    if key not in _watched:
        _watched[key] = weakref.ref(code, partial(_forget, key))
    return key


def _create_method_extractors(_: int, tree: Any, *args: Any, **kwargs: Any) -> Any:
    """Cache what is derived from a method by the tree of its code, not by the address of the function."""
    return asttranslation.create_extractors(id(tree), tree, *args, **kwargs)


def _forget(key: int, _: object) -> None:
    """Remove code that is gone from Pony's caches, before other code can get its address."""
    del _watched[key]
    utils.lambda_args_cache.pop(key, None)
    asttranslation.extractors_cache.pop(key, None)
    tree, _ = decompiling.ast_cache.pop(key, (None, None))
    asttranslation.extractors_cache.pop(id(tree), None)


utils.get_codeobject_id = decompiling.get_codeobject_id = _code_key
sqltranslation.create_extractors = _create_method_extractors

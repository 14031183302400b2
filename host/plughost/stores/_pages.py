"""Reading a page of a list, in the order and with the filters that a client asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from plughost.stores._sessions import refuse_unfit

if TYPE_CHECKING:
    from collections.abc import Callable

    from plughost.http import Page
    from plughost.stores._sessions import Session

T = TypeVar("T")


def read_page(
    session: Session, kind: Callable[..., T], select: str, page: Page, *values: object
) -> tuple[list[T], int | None]:
    """Return the records of a page, and how many there are on all pages. It is an operation of a store by itself.

        notes, total = store.read(read_page, Note, "SELECT id, text FROM notes", page)

    Args:
        session: The operation's.
        kind: Called with the columns of each row, as `Session.records` does.
        select: What is listed. Its columns are called as the fields of the page.
        page: What was asked for.
        *values: One for each `?` of the SELECT.

    Returns:
        The records, and their number on all pages. None in its place where a cursor leads from page to page.
    """
    total = None if page.paging.cursor else 0
    bound = [*values, *page.filters.values(), *(page.after or ())]
    if page.is_empty or not _fit(bound):
        return [], total
    conditions = [f"{name} = ?" for name in page.filters]
    bound = [*values, *page.filters.values()]
    listed = f"FROM ({select}) AS listed"
    if total is not None:
        ((total,),) = session.rows(f"SELECT count(*) {listed}{_where(conditions)}", *bound)
        if page.offset >= total:
            return [], total
    elif page.after is not None:
        condition, further = _following(page.order, page.after)
        conditions.append(condition)
        bound += further
    order = ", ".join(f"{name} DESC" if descending else name for name, descending in page.order)
    sql = f"SELECT * {listed}{_where(conditions)} ORDER BY {order} LIMIT ? OFFSET ?"
    return session.records(kind, sql, *bound, page.limit, page.offset), total


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _following(order: tuple[tuple[str, bool], ...], after: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Return the condition of what follows an item, and its values: the first field that differs decides."""
    terms: list[str] = []
    values: list[Any] = []
    for place, (name, descending) in enumerate(order):
        same = [f"{each} = ?" for each, _ in order[:place]]
        terms.append(" AND ".join([*same, f"{name} {'<' if descending else '>'} ?"]))
        values += after[: place + 1]
    return f"({' OR '.join(f'({term})' for term in terms)})", values


def _fit(values: list[Any]) -> bool:
    """Tell whether columns can hold some values; what none can hold matches nothing."""
    try:
        refuse_unfit(tuple(values))
    except ValueError:
        return False
    return True

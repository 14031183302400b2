"""What the query of a list asks for: page, size, order and filters (CONTRACT 5)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from plughost.http import MAX_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_SIZE: Final = 20

Value = str | int | Decimal

_LARGEST_PRICE: Final = Decimal(10) ** 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A page of the products.

    Attributes:
        page: Which one, from zero.
        size: Products on a page.
        sort: The order as it was asked for, such as `name,-price`.
        order: The same as fields, each with whether it is descending.
        filters: Field to the value that it must have.
        asked: The filters as they were asked for, to be kept in links.
        impossible: Whether no product can match: a filter asks for two values at once, or for one that none can have.
    """

    page: int = 0
    size: int = DEFAULT_SIZE
    sort: str = ""
    order: tuple[tuple[str, bool], ...] = ()
    filters: Mapping[str, Value] = field(default_factory=dict)
    asked: tuple[tuple[str, str], ...] = ()
    impossible: bool = False

    def of_page(self, page: int) -> Query:
        """Return the query of another page of the same list."""
        return replace(self, page=page)

    def filter_text(self) -> str:
        """Return the filters as a URL has them."""
        return urlencode(self.asked)

    def text(self) -> str:
        """Return the query as a URL has it."""
        pairs = [("page", str(self.page)), ("size", str(self.size))]
        if self.sort:
            pairs.append(("sort", self.sort))
        return urlencode([*pairs, *self.asked])


def query_of(
    page: int, size: int, sort: Sequence[str], filters: Mapping[str, Sequence[Value]], maximum_size: int
) -> Query:
    """Return the page that declared parameters ask for.

    Args:
        page: Which one; below zero it is the first.
        size: Products on a page; below 1 as by default.
        sort: Fields joined by commas, each with or without `-`.
        filters: Field to the values that it must have.
        maximum_size: Products on a page at most.
    """
    return replace(
        filtered(filters),
        page=max(page, 0),
        size=min(size if size >= 1 else DEFAULT_SIZE, maximum_size),
        sort=",".join(sort),
        order=_order(",".join(sort)),
    )


def filtered(filters: Mapping[str, Sequence[Value]]) -> Query:
    """Return the query of the products that have some values; of several values for a field, all of them."""
    given = {name: values for name, values in filters.items() if values}
    return Query(
        filters={name: values[0] for name, values in given.items()},
        asked=tuple((name, str(value)) for name, values in given.items() for value in values),
        impossible=any(value != values[0] or not _possible(value) for values in given.values() for value in values),
    )


def _order(sort: str) -> tuple[tuple[str, bool], ...]:
    order: dict[str, bool] = {}
    for term in sort.split(",") if sort else ():
        order.setdefault(term.removeprefix("-"), term.startswith("-"))
    return tuple(order.items())


def _possible(value: Value) -> bool:
    """Tell whether a product may have a value; one that none may have need not reach the database."""
    if isinstance(value, str):
        return value != "" and "\0" not in value
    if isinstance(value, int):
        return 0 <= value <= MAX_ID
    return 0 <= value < _LARGEST_PRICE and value == round(value, 4)

"""What the query of a list asks for: page, size, order and filters (CONTRACT 5)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import falcon

from plughost.http import MAX_ID
from plughost_catalog_store import FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plughost.http import Request

DEFAULT_SIZE: Final = 20

Value = str | int | Decimal

_integer = re.compile(r"-?[0-9]{1,300}").fullmatch
_number = re.compile(r"-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?").fullmatch
_FILTERS: Final = ("sku", "name", "price", "stock")
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

    def text(self) -> str:
        """Return the query as a URL has it."""
        pairs = [("page", str(self.page)), ("size", str(self.size))]
        if self.sort:
            pairs.append(("sort", self.sort))
        return urlencode([*pairs, *self.asked])


def read_query(req: Request, maximum_size: int) -> Query:
    """Read what a request's query asks for; parameters of other names are left alone.

    Args:
        req: The request.
        maximum_size: Products on a page at most.

    Raises:
        falcon.HTTPNotFound: `page` or `size` is no integer, which the original answers so, too.
        falcon.HTTPBadRequest: `sort` names no field, or a filter's value is of the wrong type; the detail names it.
    """
    page, size = _int(req, "page", 0), _int(req, "size", DEFAULT_SIZE)
    sort = ",".join(part for part in req.get_param_as_list("sort") or () if part)
    return replace(
        read_filters(req),
        page=max(page, 0),
        size=min(size if size >= 1 else DEFAULT_SIZE, maximum_size),
        sort=sort,
        order=_order(sort),
    )


def read_filters(req: Request) -> Query:
    """Read the filters of a request's query only.

    Raises:
        falcon.HTTPBadRequest: A filter's value is of the wrong type; the detail names it.
    """
    filters: dict[str, Value] = {}
    asked: list[tuple[str, str]] = []
    impossible = False
    for name in _FILTERS:
        for text in req.get_param_as_list(name) or ():
            value = _value(name, text)
            impossible = impossible or not _possible(value) or filters.get(name, value) != value
            filters[name] = value
            asked.append((name, text))
    return Query(filters=filters, asked=tuple(asked), impossible=impossible)


def _int(req: Request, name: str, default: int) -> int:
    text = next(iter(req.get_param_as_list(name) or ()), "")
    if not text:
        return default
    if not _integer(text):
        raise falcon.HTTPNotFound(description=f"{name}: must be an integer.")
    return int(text)


def _order(sort: str) -> tuple[tuple[str, bool], ...]:
    order: dict[str, bool] = {}
    for term in sort.split(",") if sort else ():
        name = term.removeprefix("-")
        if name not in FIELDS:
            raise falcon.HTTPBadRequest(
                description=f"sort: {term!r} is none of the fields {', '.join(FIELDS)}, each with or without a '-'."
            )
        order.setdefault(name, term.startswith("-"))
    return tuple(order.items())


def _value(name: str, text: str) -> Value:
    if name == "stock":
        if not _integer(text):
            raise falcon.HTTPBadRequest(description="stock: must be an integer.")
        return int(text)
    if name == "price":
        if not _number(text):
            raise falcon.HTTPBadRequest(description="price: must be a number.")
        return Decimal(text)
    return text


def _possible(value: Value) -> bool:
    """Tell whether a product may have a value; one that none may have need not reach the database."""
    if isinstance(value, str):
        return value != "" and "\0" not in value
    if isinstance(value, int):
        return 0 <= value <= MAX_ID
    return 0 <= value < _LARGEST_PRICE and value == round(value, 4)

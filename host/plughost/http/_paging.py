"""Lists that clients read page by page: one declaration for parameters, headers and links (RFC 8288)."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar
from urllib.parse import urlencode

import falcon
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from plughost._api.declarations import Parameter
from plughost.http._errors import Invalid, Violation
from plughost.http._json.codec import MalformedJSON, decode, encode
from plughost.http._routing import MAX_TARGET_BYTES, raw_path

if TYPE_CHECKING:
    from plughost.http._request import Request

T = TypeVar("T")
Pairs = tuple[tuple[str, str], ...]

_RESERVED: Final = frozenset({"page", "size", "sort", "cursor"})
_STORABLE: Final = frozenset({bool, int, float, str, Decimal, datetime})
_TYPES: Final = frozenset({"string", "integer", "number", "boolean"})
_PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {"string": (str,), "integer": (int,), "number": (int, Decimal)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paging:
    """How clients read a list: by pages or by a cursor, sorted and filtered as they ask.

    Put its `parameters` into the operation and its `headers` into the response. `page` returns the page that a request
    asks for. Field names are those of `model`.

    Attributes:
        model: The model of an item.
        sort: The fields that clients may sort by.
        order: The fields to sort by unless a request asks for others, with `-` in front for descending.
        filters: The fields that clients may filter by.
        size: Items on a page unless a request asks for another number.
        maximum: Most items on a page. A request for more gets this many.
        cursor: Whether a page begins after the last item of another one, instead of at an offset. Then pages of a list
            of any length are equally fast, and no item that stays in the list is missed. There is no total, and no
            link to the last page.
        key: A field whose value is unique to each item. Every sort order ends with it.
        refusal: The status for a page or size that is not an integer.
    """

    model: type[BaseModel]
    sort: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    size: int = 20
    maximum: int = 100
    cursor: bool = False
    key: str = "id"
    refusal: Literal[400, 404] = 400
    _fields: Mapping[str, TypeAdapter[Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Resolve the fields. Raise `ValueError` if the model lacks one, or a filter can't be a parameter."""
        known = self.model.model_fields
        fields: dict[str, TypeAdapter[Any]] = {}
        for name in (self.key, *self.sort, *(each.removeprefix("-") for each in self.order), *self.filters):
            if name not in known:
                has = f"but {', '.join(known)}" if known else "and no other"
                raise ValueError(f"{self.model.__name__} has no field {name!r}, {has}")
            kind: Any = Annotated[known[name].annotation, known[name]]
            fields[name] = TypeAdapter(kind)
        for name in _RESERVED.intersection(self.filters):
            raise ValueError(f"a filter can't be called {name!r}, which is a parameter of paging itself")
        object.__setattr__(self, "_fields", fields)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of an operation that lists items."""
        declare = partial(Parameter, place="query", allow_empty=True)
        integer = partial(declare, refusal=self.refusal)
        if self.cursor:
            parameters = [declare(name="cursor", description="Where the page begins: as `Link` has it.")]
        else:
            page = "Which page, from zero; below it the first."
            parameters = [integer(name="page", description=page, schema={"type": "integer", "default": 0})]
        size = "Items on a page; below 1 as by default. The host has a maximum."
        parameters.append(integer(name="size", description=size, schema={"type": "integer", "default": self.size}))
        if self.sort:
            term = f"-?({'|'.join(self.sort)})"
            allowed = f"one or more of {', '.join(self.sort)}, joined by commas, each with or without - in front"
            items = {"type": "string", "pattern": f"^{term}(,{term})*$", "description": allowed}
            schema = {"type": "array", "items": items, "examples": [[",-".join(self.sort[-2:])]]}
            default = f" By default `{','.join(self.order)}`." if self.order else ""
            text = f"Fields to sort by, joined by commas; `-` in front for descending.{default}"
            parameters.append(declare(name="sort", description=text, schema=schema))
        return (*parameters, *self.filter_parameters)

    @property
    def filter_parameters(self) -> tuple[Parameter, ...]:
        """The parameters of an operation that only counts items."""
        return tuple(
            Parameter(
                name=name,
                place="query",
                description=f"Only those with this {name}; if sent more than once, all must match.",
                schema={"type": "array", "items": _plain_schema(name, self._fields[name])},
            )
            for name in self.filters
        )

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of a response that lists items."""
        if self.cursor:
            return {"Link": "The pages first and next."}
        return {"Link": "The pages first, last, previous, prev and next.", "X-Total-Count": "Items on all pages."}

    def page(self, asked: Mapping[str, Any], **kept: object) -> Page:
        """Return the page that a request asks for.

        Args:
            asked: The parameters that the responder receives as `**asked`.
            **kept: Other parameters of the operation, which links to other pages repeat.

        Raises:
            Invalid: The cursor doesn't belong to this list in this order.
            ValueError: `asked` was not checked by the operation, and sorts by a field that `sort` lacks.
        """
        filters = {name: asked[name] for name in self.filters if asked.get(name)}
        is_empty = any(value != values[0] for values in filters.values() for value in values)
        accepted: dict[str, Any] = {}
        for name, values in filters.items():
            try:
                accepted[name] = self._storable(name, values[0])
            except ValidationError:
                is_empty = True
        size, sort = asked.get("size", self.size), ",".join(asked.get("sort", ()))
        terms = sort.split(",") if sort else ()
        for term in terms:
            if term.removeprefix("-") not in self.sort:
                raise ValueError(f"a request can't sort by {term!r}, but by {', '.join(self.sort)}")
        order: dict[str, bool] = {}
        for term in (*(terms or self.order), self.key):
            order.setdefault(term.removeprefix("-"), term.startswith("-"))
        return Page(
            paging=self,
            number=max(asked.get("page", 0), 0),
            size=min(size if size >= 1 else self.size, self.maximum),
            sort=sort,
            order=tuple(order.items()),
            filters=accepted,
            after=self._after(asked.get("cursor"), sort, order),
            is_empty=is_empty,
            asked=tuple((name, text_of(value)) for name, values in filters.items() for value in values),
            kept=tuple(
                (name, text_of(each))
                for name, value in kept.items()
                for each in (value if isinstance(value, tuple) else (value,))
                if each is not None
            ),
        )

    def _storable(self, name: str, value: Any) -> Any:
        """Return a client's value as a field has it, in a type that stores take; otherwise databases would refuse it.

        Raises:
            ValidationError: No item may have it.
        """
        validated = self._fields[name].validate_python(value)
        return validated if type(validated) in _STORABLE else to_jsonable_python(validated)

    def _position(self, name: str, value: Any) -> Any:
        """Return the same for a cursor. Of a plain value only the type counts: its item may be older than the rules."""
        try:
            return self._storable(name, value)
        except ValidationError:
            schema = _first_schema(self._fields[name])
            if "format" in schema or type(value) not in _PYTHON_TYPES.get(str(schema.get("type")), ()):
                raise
            return value

    def _after(self, cursor: str | None, sort: str, order: Mapping[str, bool]) -> tuple[Any, ...] | None:
        """Return the values of the item before the page, from the cursor. They are untrusted."""
        if cursor is None:
            return None
        try:
            cursor_sort, *values = decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
            if cursor_sort == sort:
                pairs = zip(order, values, strict=True)
                return tuple(self._position(name, value) for name, value in pairs)
        except (ValueError, TypeError, MalformedJSON):
            pass
        raise Invalid([Violation("cursor", "must be the one of a link to a page in this order")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list, as `Paging.page` returns it.

    Attributes:
        paging: The declaration.
        number: Its number, from zero. Zero with a cursor.
        size: Items on a page.
        sort: The requested order, such as `name,-price`.
        order: The same as fields, each with whether it is descending. It ends with the key, so that it is total.
        filters: Field to the value that items must have.
        after: The `order` fields' values in the item before the page. None for the first page or without a cursor.
        is_empty: Whether nothing can match: a filter asks for two values at once, or for one that no item may have.
        asked: The filters as requested.
        kept: Other parameters that links repeat.
    """

    paging: Paging
    number: int
    size: int
    sort: str
    order: tuple[tuple[str, bool], ...]
    filters: Mapping[str, Any]
    after: tuple[Any, ...] | None
    is_empty: bool
    asked: Pairs
    kept: Pairs

    @property
    def offset(self) -> int:
        """The number of items before the page; 0 with a cursor."""
        return self.number * self.size

    @property
    def limit(self) -> int:
        """How many items to read: with a cursor one more, to see whether there is a next page."""
        return self.size + self.paging.cursor

    def query(self, **other: object) -> str:
        """Return the URL query of this page, or of another one of the list: `page.query(page=3)`."""
        own = {} if self.paging.cursor else {"page": self.number}
        pairs: list[tuple[str, object]] = [*(own | other).items(), ("size", self.size)]
        if self.sort:
            pairs.append(("sort", self.sort))
        return urlencode([*pairs, *self.asked, *self.kept])

    def filter_query(self) -> str:
        """Return the URL query of the filters alone."""
        return urlencode(self.asked)

    def links(self, base: str, items: Sequence[object], total: int | None) -> dict[str, str]:
        """Return the URLs of related pages by their link relations, such as `next`.

        Args:
            base: The absolute URL of the list.
            items: The items that were read, `limit` at most.
            total: How many items there are on all pages. None with a cursor.
        """
        pages: dict[str, Mapping[str, object]]
        if self.paging.cursor or total is None:
            pages = {"first": {}}
            if len(items) > self.size:
                pages["next"] = {"cursor": self._cursor_after(items[self.size - 1])}
        else:
            last = max(0, (total - 1) // self.size)
            pages = {"first": {"page": 0}, "last": {"page": last}}
            if self.number > 0:
                pages["previous"] = pages["prev"] = {"page": min(self.number - 1, last)}
            if self.number < last:
                pages["next"] = {"page": self.number + 1}
        return {name: f"{base}?{self.query(**place)}" for name, place in pages.items()}

    def send(self, req: Request, resp: falcon.Response, items: Sequence[T], total: int | None = None) -> list[T]:
        """Set `Link` and `X-Total-Count`, and return the items for the response.

        A request whose links would be longer than an accepted address is 414: encoding makes some characters longer.

        Args:
            req: The request.
            resp: Its response.
            items: The items that were read, `limit` at most.
            total: How many items there are on all pages. None with a cursor.
        """
        links = self.links(req.prefix + raw_path(req.env).removesuffix("/"), items, total)
        if any(len(address) - len(req.prefix) > MAX_TARGET_BYTES for address in links.values()):
            raise falcon.HTTPUriTooLong(description=f"Links to pages would be longer than {MAX_TARGET_BYTES} bytes.")
        resp.set_header("Link", ", ".join(f'<{address}>; rel="{name}"' for name, address in links.items()))
        if total is not None:
            resp.set_header("X-Total-Count", str(total))
        return list(items[: self.size])

    def _cursor_after(self, item: Any) -> str:
        values = [item[name] if isinstance(item, Mapping) else getattr(item, name) for name, _ in self.order]
        return base64.urlsafe_b64encode(encode([self.sort, *values])).rstrip(b"=").decode()


def _plain_schema(name: str, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """Return a field's type without its bounds: a value that no item can have is no error, it matches none."""
    kind = _first_schema(adapter).get("type")
    if kind not in _TYPES:
        raise ValueError(f"a filter by {name!r} can't be a parameter: its type is none of {', '.join(sorted(_TYPES))}")
    return {"type": kind}


def _first_schema(adapter: TypeAdapter[Any]) -> Mapping[Any, Any]:
    """Return a field's JSON Schema, the first of several, without null."""
    schema = adapter.json_schema()
    return next((each for each in schema.get("anyOf", (schema,)) if each.get("type") != "null"), {})


def text_of(value: object) -> str:
    """Return a parameter's value as text, as in a URL."""
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)

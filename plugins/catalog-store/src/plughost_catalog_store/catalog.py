"""The catalog: all products in the store that several plugins share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from plughost.http import MAX_ID
from plughost.stores import Duplicate
from plughost_catalog_core import ProductDraft, ProductExists, ProductNotFound
from plughost_catalog_store import table
from plughost_catalog_store.table import FIELDS, Line, Product

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal

    from plughost.stores import OpenStore, Session

Check: TypeAlias = Callable[[Product | None], object]

_BATCH: Final = 1000


def _accept_any(_: Product | None) -> None:
    """Accept any product."""


class Catalog:
    """All products. Every change is one transaction, on disk when its method returns.

    Methods raise the errors of `OpenStore` as well as their own. Ids are in 1 .. 2^63-1.
    A `Check` is called with the current product or None, while it is locked; if the check raises, nothing changes.
    A retried transaction calls it again, so it must have no side effects.
    """

    def __init__(self, store: OpenStore[Session]) -> None:
        self._store = store

    # By SKU.

    def batches(self) -> Iterator[Sequence[Product]]:
        """Yield all products in batches, which bounds the memory, by id: the order of creation."""
        return self._batches("id > ?")

    def lines(self) -> Iterator[Sequence[Line]]:
        """Yield all products like `batches`, but with prices ready for JSON, for lists that are only sent."""
        return self._store.batches(table.lines, key=attrgetter("id"), size=_BATCH)

    def get(self, sku: str) -> Product:
        """Return a product.

        Raises:
            ProductNotFound: No product has this SKU.
        """
        product = self._store.read(table.one, "WHERE sku = ?", sku)
        if product is None:
            raise ProductNotFound(sku)
        return product

    def create(self, draft: ProductDraft) -> Product:
        """Store a new product.

        Raises:
            ProductExists: Its SKU is taken.
        """
        try:
            return self._store.single(table.insert, draft)
        except Duplicate as error:
            _raise_exists(draft.sku, error)

    def delete(self, sku: str) -> None:
        """Remove a product.

        Raises:
            ProductNotFound: No product has this SKU.
        """
        if not self._store.single(table.delete, "WHERE sku = ?", sku):
            raise ProductNotFound(sku)

    # By id.

    def find(self, product_id: int) -> Product | None:
        """Return the product with this id, or None."""
        return self._store.read(table.one, "WHERE id = ?", product_id)

    def put(self, product_id: int, draft: ProductDraft, check: Check = _accept_any) -> tuple[Product, bool]:
        """Replace a product, or store a new one with this id.

        An id used here is never generated later.

        Returns:
            The product, and whether it is new.

        Raises:
            ProductExists: Another product has its SKU.
        """
        try:
            while True:
                product = self._store.run(_replace, product_id, draft, check)
                if product is not None:
                    return product, False
                product = self._store.run(table.insert_at, product_id, draft)
                if product is not None:
                    return product, True
                # Another session has used the id meanwhile.
        except Duplicate as error:
            _raise_exists(draft.sku, error)

    def remove(self, product_id: int, check: Check = _accept_any) -> bool:
        """Remove a product and return whether it existed."""
        return self._store.run(_remove, product_id, check)

    # Queries.

    def page(
        self,
        *,
        filters: Mapping[str, str | int | Decimal] | None = None,
        order: Sequence[tuple[str, bool]] = (),
        offset: int = 0,
        limit: int = 20,
    ) -> list[Product]:
        """Return some of the products, in a total order.

        Args:
            filters: The value that each field must have; integers within 64 bits.
            order: Fields to sort by, each with whether it is descending. Text sorts by code points; id is the last key.
            offset: How many products to skip.
            limit: The maximum number of products.

        Raises:
            LookupError: A field is unknown.
        """
        condition, values = _condition(filters or {})
        terms = ", ".join(f"{_column(name)} DESC" if descending else _column(name) for name, descending in order)
        clauses = f"{condition} ORDER BY {terms + ', ' if terms else ''}id LIMIT ? OFFSET ?"
        return self._store.read(table.select, clauses, *values, min(limit, MAX_ID), min(offset, MAX_ID))

    def count(self, filters: Mapping[str, str | int | Decimal] | None = None) -> int:
        """Return the number of products; see `page`."""
        condition, values = _condition(filters or {})
        return self._store.read(table.count, condition, *values)

    def priced_between(self, lowest: Decimal, highest: Decimal) -> Iterator[Product]:
        """Yield the products in a price range, both ends included, by id (SPEC Product)."""
        condition = "id > ? AND ? <= price AND price <= ?"
        return chain.from_iterable(self._batches(condition, str(lowest), str(highest)))

    def in_stock(self) -> Iterator[Product]:
        """Yield the products whose stock is more than 0, by id (SPEC Product)."""
        return chain.from_iterable(self._batches("id > ? AND stock > 0"))

    def named(self, text: str, page: int = 0, size: int = 20) -> list[Product]:
        """Return a page of the products whose name contains a text, by id (SPEC Product).

        Args:
            text: Matched literally and case-sensitively.
            page: The page's number, from zero.
            size: The number of products on a page.
        """
        contains = "strpos" if self._store.dialect == "postgresql" else "instr"
        clauses = f"WHERE {contains}(name, ?) > 0 ORDER BY id LIMIT ? OFFSET ?"
        return self._store.read(table.select, clauses, text, min(size, MAX_ID), min(page * size, MAX_ID))

    def _batches(self, condition: str, *values: str | int) -> Iterator[Sequence[Product]]:
        def following(session: Session, last: int | None, limit: int) -> list[Product]:
            return table.select(session, f"WHERE {condition} ORDER BY id LIMIT ?", last or 0, *values, limit)

        return self._store.batches(following, key=lambda product: product.id, size=_BATCH)


def _replace(session: Session, product_id: int, draft: ProductDraft, check: Check) -> Product | None:
    current = table.select_for_update(session, product_id)
    check(current)
    return None if current is None else table.update(session, product_id, draft)


def _remove(session: Session, product_id: int, check: Check) -> bool:
    current = table.select_for_update(session, product_id)
    check(current)
    return current is not None and table.delete(session, "WHERE id = ?", product_id) > 0


def _condition(filters: Mapping[str, str | int | Decimal]) -> tuple[str, list[str | int]]:
    """Return the WHERE clause for some filters, and its values."""
    terms = " AND ".join(f"{_column(name)} = ?" for name in filters)
    values = [value if isinstance(value, int) else str(value) for value in filters.values()]
    return f"WHERE {terms}" if terms else "", values


def _column(name: str) -> str:
    """Return the column of a field. Only known names are allowed, because the column becomes part of SQL.

    Raises:
        LookupError: A field is unknown.
    """
    if name not in FIELDS:
        raise LookupError(name)
    return name


def _raise_exists(sku: str, error: Duplicate) -> NoReturn:
    """Raise `ProductExists`, or the error itself if the id is the duplicate."""
    if error.columns == ("id",):
        raise error
    raise ProductExists(sku) from error

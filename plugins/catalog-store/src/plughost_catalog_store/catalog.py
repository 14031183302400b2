"""The catalog: every product in the store, for as many plugins as share it."""

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


def _whatever(_: Product | None) -> None:
    """Have nothing against it."""


class Catalog:
    """All products. Every change is one transaction, on the disk before its method returns.

    A method raises what `OpenStore` raises, beside what it names. Ids are numbers in 1 .. 2^63-1.
    A `Check` is called with the product as it is, or None, when nobody else can change it any more; if it raises,
    nothing is done. It may be called again where others were in the way, so it only looks.
    """

    def __init__(self, store: OpenStore[Session]) -> None:
        """Take the open store `catalog`."""
        self._store = store

    # By SKU.

    def batches(self) -> Iterator[Sequence[Product]]:
        """Yield all products by id, which is the order of creation, in batches, so that memory stays bounded."""
        return self._batches("id > ?")

    def lines(self) -> Iterator[Sequence[Line]]:
        """Yield what `batches` does, for a list that is only sent: from the database to JSON without a step between."""
        return self._store.batches(table.lines, key=attrgetter("id"), size=_BATCH)

    def get(self, sku: str) -> Product:
        """Return a product.

        Raises:
            ProductNotFound: There is none with this SKU.
        """
        product = self._store.read(table.get, sku)
        if product is None:
            raise ProductNotFound(sku)
        return product

    def create(self, draft: ProductDraft) -> Product:
        """Take a new product on record.

        Raises:
            ProductExists: Its SKU is taken.
        """
        try:
            return self._store.single(table.insert, draft)
        except Duplicate as error:
            _refuse(draft.sku, error)

    def delete(self, sku: str) -> None:
        """Remove a product.

        Raises:
            ProductNotFound: There is none with this SKU.
        """
        if not self._store.single(table.delete, "WHERE sku = ?", sku):
            raise ProductNotFound(sku)

    # By id.

    def find(self, product_id: int) -> Product | None:
        """Return a product, or None where there is none with this id."""
        return self._store.read(table.find, product_id)

    def put(self, product_id: int, draft: ProductDraft, check: Check = _whatever) -> tuple[Product, bool]:
        """Replace a product, or take a new one on record under this id.

        Ids that are generated later never meet one that was given here.

        Returns:
            The product, and whether it is new.

        Raises:
            ProductExists: Another product has its SKU.
        """
        try:
            return self._store.run(_put, product_id, draft, check)
        except Duplicate as error:
            _refuse(draft.sku, error)

    def remove(self, product_id: int, check: Check = _whatever) -> bool:
        """Remove a product; tell whether there was one."""
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
        """Return some of the products, in an order that is always total.

        Args:
            filters: Field to the value that it must have, integers within 64 bits.
            order: Fields to sort by, each with whether it is descending; text goes by code points, and id comes last.
            offset: How many to leave out; beyond the end there are none.
            limit: How many at most.

        Raises:
            LookupError: There is no such field.
        """
        condition, values = _condition(filters or {})
        terms = ", ".join(f"{_known(name)} DESC" if descending else _known(name) for name, descending in order)
        rest = f"{condition} ORDER BY {terms + ', ' if terms else ''}id LIMIT ? OFFSET ?"
        return self._store.read(table.select, rest, *values, min(limit, MAX_ID), min(offset, MAX_ID))

    def count(self, filters: Mapping[str, str | int | Decimal] | None = None) -> int:
        """Return the number of products; see `page`."""
        condition, values = _condition(filters or {})
        return self._store.read(table.count, condition, *values)

    def priced_between(self, lowest: Decimal, highest: Decimal) -> Iterator[Product]:
        """Yield the products with a price within a range, both ends included, by id (SPEC Product)."""
        condition = "id > ? AND ? <= price AND price <= ?"
        return chain.from_iterable(self._batches(condition, str(lowest), str(highest)))

    def in_stock(self) -> Iterator[Product]:
        """Yield the products of which there are any, by id (SPEC Product)."""
        return chain.from_iterable(self._batches("id > ? AND stock > 0"))

    def named(self, text: str, page: int = 0, size: int = 20) -> list[Product]:
        """Return a page of the products whose name contains a text, by id (SPEC Product).

        Args:
            text: Taken literally; letter case counts.
            page: Which one, from zero.
            size: Products on a page.
        """
        return self._store.read(table.named, text, min(page * size, MAX_ID), min(size, MAX_ID))

    def _batches(self, condition: str, *values: str | int) -> Iterator[Sequence[Product]]:
        def following(session: Session, last: int | None, limit: int) -> list[Product]:
            return table.select(session, f"WHERE {condition} ORDER BY id LIMIT ?", last or 0, *values, limit)

        return self._store.batches(following, key=lambda product: product.id, size=_BATCH)


def _put(session: Session, product_id: int, draft: ProductDraft, check: Check) -> tuple[Product, bool]:
    current = table.locked(session, product_id)
    check(current)
    if current is None:
        product = table.insert_at(session, product_id, draft)
        if product is not None:
            return product, True
        check(table.locked(session, product_id))
    return table.update(session, product_id, draft), False


def _remove(session: Session, product_id: int, check: Check) -> bool:
    current = table.locked(session, product_id)
    check(current)
    return current is not None and table.delete(session, "WHERE id = ?", product_id) > 0


def _condition(filters: Mapping[str, str | int | Decimal]) -> tuple[str, list[str | int]]:
    """Return the WHERE clause of filters, and its values."""
    terms = " AND ".join(f"{_known(name)} = ?" for name in filters)
    values = [value if isinstance(value, int) else str(value) for value in filters.values()]
    return f"WHERE {terms}" if terms else "", values


def _known(name: str) -> str:
    """Return the name of a field, which becomes part of SQL.

    Raises:
        LookupError: There is no such field.
    """
    if name not in FIELDS:
        raise LookupError(name)
    return name


def _refuse(sku: str, error: Duplicate) -> NoReturn:
    """Name the SKU where it is what is taken."""
    if error.columns == ("id",):
        raise error
    raise ProductExists(sku) from error

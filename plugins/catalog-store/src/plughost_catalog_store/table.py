"""The table `products`: store operations, and parts of them; the only module of the plugin that knows SQL."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from plughost.stores import Session
    from plughost_catalog_core import ProductDraft

FIELDS: Final = ("id", "sku", "name", "price", "stock")
"""The columns of the table."""


class Product(msgspec.Struct, frozen=True):
    """A product on record.

    Attributes:
        id: Given by the store, or by a client of the generated CRUD; 1 .. 2^63-1.
        sku: Identifies it, too.
        name: Its name.
        price: Its price, exact, without trailing zeros or an exponent.
        stock: How many there are.
    """

    id: int
    sku: str
    name: str
    price: Decimal
    stock: int

    @property
    def in_stock(self) -> bool:
        """Whether there is any."""
        return self.stock > 0


class Line(msgspec.Struct, frozen=True):
    """A product as a list sends it: as `Product`, its price as the JSON number that the database wrote."""

    id: int
    sku: str
    name: str
    price: msgspec.Raw
    stock: int


# SQLite has a price as binary floating point: 15 digits are what it is exact to, and all that a price has.
_PRICE: Final = {"sqlite": "printf('%.15g', price)", "postgresql": "trim_scale(price)::text"}
_SELECT: Final = {dialect: f"SELECT id, sku, name, {price}, stock FROM products " for dialect, price in _PRICE.items()}  # noqa: S608 - all ours  # nosec B608
_CONTAINS: Final = {"sqlite": "instr", "postgresql": "strpos"}
_INSERT: Final = "INSERT INTO products (sku, name, price, stock) VALUES (?, ?, ?, ?)"
_INSERT_AT: Final = "INSERT INTO products (id, sku, name, price, stock) VALUES (?, ?, ?, ?, ?)"
_UPDATE: Final = "UPDATE products SET sku = ?, name = ?, price = ?, stock = ? WHERE id = ?"
_SEQUENCE: Final = "pg_get_serial_sequence('products', 'id')::regclass"


def select(session: Session, rest: str = "", *values: str | int) -> list[Product]:
    """Select products.

    Args:
        session: The operation's.
        rest: What follows the FROM clause, with a `?` for each of the values.
        *values: The values; prices as strings.
    """
    rows = session.rows(_SELECT[session.dialect] + rest, *values)
    return [Product(key, sku, name, Decimal(price), stock) for key, sku, name, price, stock in rows]


def lines(session: Session, after: int | None, limit: int) -> list[Line]:
    """Select the products that follow an id, for a list."""
    rows = session.rows(_SELECT[session.dialect] + "WHERE id > ? ORDER BY id LIMIT ?", after or 0, limit)
    raw = msgspec.Raw
    return [Line(key, sku, name, raw(price), stock) for key, sku, name, price, stock in rows]


def get(session: Session, sku: str) -> Product | None:
    """Return the product with an SKU, or None."""
    row = session.row(_SELECT[session.dialect] + "WHERE sku = ?", sku)
    return None if row is None else Product(row[0], row[1], row[2], Decimal(row[3]), row[4])


def find(session: Session, product_id: int) -> Product | None:
    """Return the product with an id, or None."""
    return next(iter(select(session, "WHERE id = ?", product_id)), None)


def named(session: Session, text: str, offset: int, limit: int) -> list[Product]:
    """Return products whose name contains a text, taken literally, by id."""
    contains = f"{_CONTAINS[session.dialect]}(name, ?) > 0"
    return select(session, f"WHERE {contains} ORDER BY id LIMIT ? OFFSET ?", text, limit, offset)


def count(session: Session, rest: str = "", *values: str | int) -> int:
    """Count products; see `select`."""
    ((found,),) = session.rows(f"SELECT count(*) FROM products {rest}", *values)  # noqa: S608 - all ours  # nosec B608
    return int(found)


def insert(session: Session, draft: ProductDraft) -> Product:
    """Take a product on record under a new id, in one statement."""
    return _product(session.insert(_INSERT, draft.sku, draft.name, draft.price, draft.stock), draft)


def locked(session: Session, product_id: int) -> Product | None:
    """Return a product that nobody else changes before this session is over; None where there is none."""
    for_update = " FOR UPDATE" if session.dialect == "postgresql" else ""
    return next(iter(select(session, f"WHERE id = ?{for_update}", product_id)), None)


def insert_at(session: Session, product_id: int, draft: ProductDraft) -> Product | None:
    """Take a product on record under an id that clients choose; ids that are generated later are beyond it.

    Returns:
        The product, or None where one came to have this id meanwhile.
    """
    if session.dialect == "postgresql":
        # Whoever inserts holds a lock that this one waits for, until its commit: so nobody has drawn an id from the
        # sequence, and not inserted it yet, while the sequence is moved.
        session.change("LOCK TABLE products IN SHARE ROW EXCLUSIVE MODE")
        if count(session, "WHERE id = ?", product_id):
            return None
    # On SQLite nobody else writes, and AUTOINCREMENT sees to the rest.
    session.change(_INSERT_AT, product_id, draft.sku, draft.name, draft.price, draft.stock)
    if session.dialect == "postgresql":
        session.rows(f"SELECT setval({_SEQUENCE}, greatest(nextval({_SEQUENCE}), ?))", product_id)
    return _product(product_id, draft)


def update(session: Session, product_id: int, draft: ProductDraft) -> Product:
    """Replace all of a product but its id."""
    session.change(_UPDATE, draft.sku, draft.name, draft.price, draft.stock, product_id)
    return _product(product_id, draft)


def delete(session: Session, rest: str = "", *values: str | int) -> int:
    """Remove products, in one statement, and return how many; see `select`."""
    return session.change(f"DELETE FROM products {rest}", *values)  # noqa: S608 - all ours  # nosec B608


def _product(product_id: int, draft: ProductDraft) -> Product:
    """Return the product that a draft becomes, with its price as it will be read back: `5.00` is 5."""
    price = Decimal(format(draft.price.normalize(), "f"))
    return Product(product_id, draft.sku, draft.name, price, draft.stock)

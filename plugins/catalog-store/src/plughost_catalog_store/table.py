"""The table `products`, as one store operation sees it; the only module of the plugin that knows Pony and SQL."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pony import orm

from plughost_catalog_core import MAX_LENGTH

if TYPE_CHECKING:
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


class ProductTable:
    """What can be done with the table within one session: each method is a store operation, or a part of one.

    It reads with SQL, which is several times as fast as through entities.
    """

    def __init__(self, db: Any) -> None:
        """Define the entity on Pony's database."""

        class ProductEntity(db.Entity):  # type: ignore[misc] # Pony has no types
            _table_ = "products"
            id = orm.PrimaryKey(int, size=64, auto=True)
            sku = orm.Required(str, MAX_LENGTH, unique=True, autostrip=False)
            name = orm.Required(str, MAX_LENGTH, autostrip=False)
            price = orm.Required(Decimal, 15, 4)
            stock = orm.Required(int, size=64)

        self._db = db
        self._entity: Any = ProductEntity
        self._on_sqlite = db.provider_name == "sqlite"
        # SQLite has a price as binary floating point: 15 digits are what it is exact to, and all that a price has.
        price = "printf('%.15g', price)" if self._on_sqlite else "trim_scale(price)"
        self._select = f"SELECT id, sku, name, {price}, stock FROM products"  # noqa: S608 - all ours
        self._for_update = "" if self._on_sqlite else " FOR UPDATE"

    def select(self, rest: str = "", /, **values: str | int) -> list[Product]:
        """Select products.

        Args:
            rest: What follows the FROM clause, with a `$name` for each of the values.
            **values: The values; prices as strings.
        """
        rows = self._db.select(f"{self._select} {rest}", {}, values)
        return [Product(key, sku, name, Decimal(price), stock) for key, sku, name, price, stock in rows]

    def contains(self, column: str, value: str) -> str:
        """Return the SQL for whether a column contains the text of a value, taken literally."""
        return f"{'instr' if self._on_sqlite else 'strpos'}({column}, ${value}) > 0"

    def count(self, rest: str = "", /, **values: str | int) -> int:
        """Count products; see `select`."""
        found: int = self._db.select(f"SELECT count(*) FROM products {rest}", {}, values)[0]  # noqa: S608 - all ours
        return found

    def insert(self, draft: ProductDraft, product_id: int | None = None) -> Product:
        """Take a product on record, under a new id or a given one."""
        given = {} if product_id is None else {"id": product_id}
        product = self._entity(sku=draft.sku, name=draft.name, price=draft.price, stock=draft.stock, **given)
        self._db.flush()
        return _product(product.id, draft)

    def locked(self, product_id: int) -> Product | None:
        """Return a product that nobody else changes before this session is over; None where there is none."""
        return next(iter(self.select(f"WHERE id = $id{self._for_update}", id=product_id)), None)

    def insert_at(self, product_id: int, draft: ProductDraft) -> Product | None:
        """Take a product on record under an id that clients choose; ids that are generated later are beyond it.

        Returns:
            The product, or None where one came to have this id meanwhile.
        """
        if self._on_sqlite:  # where nobody else writes, and AUTOINCREMENT sees to the rest
            return self.insert(draft, product_id)
        # Whoever inserts holds a lock that this one waits for, until its commit: so nobody has drawn an id from the
        # sequence, and not inserted it yet, while the sequence is moved.
        self._db.execute("LOCK TABLE products IN SHARE ROW EXCLUSIVE MODE")
        if self.count("WHERE id = $id", id=product_id):
            return None
        product = self.insert(draft, product_id)
        sequence = "pg_get_serial_sequence('products', 'id')::regclass"
        self._db.select(f"SELECT setval({sequence}, greatest(nextval({sequence}), $id))", {}, {"id": product_id})
        return product

    def update(self, product_id: int, draft: ProductDraft) -> Product:
        """Replace all of a product but its id."""
        self._entity[product_id].set(sku=draft.sku, name=draft.name, price=draft.price, stock=draft.stock)
        self._db.flush()
        return _product(product_id, draft)

    def delete(self, rest: str, /, **values: str | int) -> int:
        """Remove products, and return how many; see `select`."""
        removed: int = self._db.execute(f"DELETE FROM products {rest}", {}, values).rowcount  # noqa: S608 - all ours
        return removed


def _product(product_id: int, draft: ProductDraft) -> Product:
    """Return the product that a draft becomes, with its price as it will be read back: `5.00` is 5."""
    price = Decimal(format(draft.price.normalize(), "f"))
    return Product(product_id, draft.sku, draft.name, price, draft.stock)

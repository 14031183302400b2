"""One declaration of paging gives the parameters and the links between pages, on each database."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from pydantic import BaseModel

from plughost import Operation, PluginContext, Response, Route, RouteGroup, Store, hookimpl
from plughost.http import Integer, Number, Paging, Request, Text
from plughost.stores import OpenStore, Session, read_page
from plughost.testing import plugin_distribution, running_host, store_settings

if TYPE_CHECKING:
    from pathlib import Path

    import falcon
    import httpx

ROWS: Final = (("tea", "2.5", True), ("pot", "20", True), ("cup", "2.5", False), ("jug", "7", True), ("mug", "7", True))


class Ware(BaseModel):
    """An item of the list."""

    id: Annotated[int, Integer(minimum=1)]
    name: Annotated[str, Text(max_length=10)]
    price: Annotated[Decimal, Number(minimum=0)]
    sold: bool
    zoned: datetime
    local: datetime
    note: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    id: int
    name: str
    price: float
    sold: bool
    zoned: datetime | str
    local: datetime | str


class StrictWare(Ware):
    """An item by the rules of a later version."""

    name: Annotated[str, Text(max_length=2)]
    price: Annotated[Decimal, Number(maximum=3)]


FILTERS: Final = ("name", "price", "sold", "zoned", "local")
PAGING: Final = Paging(model=Ware, sort=("name", "price"), filters=FILTERS, size=2, maximum=4)


class Wares:
    """A list with a parameter of its own."""

    def __init__(self, store: OpenStore[Session], paging: Paging) -> None:
        """Store the store and the declaration."""
        self._store = store
        self._paging = paging

    def on_get(self, req: Request, resp: falcon.Response, **asked: Any) -> None:
        """List the items."""
        page = self._paging.page(asked, colour=req.get_param("colour"))
        select = "SELECT id, name, price, sold, zoned, local FROM wares WHERE id < ?"
        wares, total = self._store.read(read_page, Row, select, page, 1000)
        resp.media = [each.name for each in page.send(req, resp, wares, total)]


class Plugin:
    """The same list by pages and by a cursor."""

    def __init__(self, folder: Path) -> None:
        """Write the migration."""
        for dialect in ("sqlite", "postgresql"):
            (folder / dialect).mkdir()
            zoned = "TIMESTAMPTZ" if dialect == "postgresql" else "TEXT"
            local = "TIMESTAMP" if dialect == "postgresql" else "TEXT"
            columns = f"id INTEGER, name TEXT, price DECIMAL(9, 2), sold BOOLEAN, zoned {zoned}, local {local}"
            sql = f"CREATE TABLE wares ({columns});\n"
            for number, (name, price, sold) in enumerate(ROWS, 1):
                moment = f"2027-05-0{number} 11:30:00.000000"
                values = f"{number}, '{name}', {price}, {sold}, '{moment}+00:00', '{moment}'"
                sql += f"INSERT INTO wares VALUES ({values});\n"
            (folder / dialect / "0001_wares.sql").write_text(sql)
        self._store = Store(name="wares", migrations=folder, tables=("wares",))

    @hookimpl
    def register_stores(self) -> list[Store]:
        """Declare the store."""
        return [self._store]

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount both."""
        routes = []
        cursor = replace(PAGING, cursor=True)
        strict = replace(cursor, model=StrictWare)
        for path, paging in (("/pages", PAGING), ("/cursor", cursor), ("/strict", strict)):
            response = Response(description="Names.", model=list[str], headers=paging.headers)
            operation = Operation(summary="List", parameters=paging.parameters, responses={200: response})
            routes.append(Route(path, Wares(context.store(self._store), paging), {"GET": operation}))
        return [RouteGroup(prefix="/wares", routes=tuple(routes))]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a host with the lists."""
    plugin = plugin_distribution("wares", Plugin(tmp_path_factory.mktemp("migrations")))
    with (
        store_settings(request.param) as settings,
        running_host(distributions=[plugin], settings=settings, strict=True) as host,
        host.client() as client,
    ):
        yield client


@pytest.mark.parametrize("how", ["pages", "cursor"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "tea pot cup jug mug"),
        ("sort=name", "cup jug mug pot tea"),
        ("sort=-price", "pot jug mug tea cup"),
        ("sort=price,-name", "tea cup mug jug pot"),
        ("sort=price&sort=name", "cup tea jug mug pot"),
        ("size=4&sort=-name", "tea pot mug jug cup"),
        ("size=99", "tea pot cup jug mug"),
        ("sold=true&sort=price", "tea jug mug pot"),
        ("price=7.0", "jug mug"),
        ("price=7&name=mug", "mug"),
        ("name=mug&name=jug", ""),
        ("name=%00", ""),
        ("name=much%20too%20long", ""),
        ("price=-1", ""),
        *((f"{name}=2027-05-02T11:30:00", "pot") for name in ("zoned", "local")),
        *((f"{name}=2027-05-02T13:30:00%2B02:00", "pot") for name in ("zoned", "local")),
        *((f"{name}=0001-01-01T00:00:00%2B14:00", "") for name in ("zoned", "local")),
    ],
)
def test_links_lead_through_the_list(client: httpx.Client, how: str, query: str, expected: str) -> None:
    """From the first page along `next`, each item comes once, in the requested order and with the requested filters."""
    answer = client.get(f"/wares/{how}?{query}&colour=red%20%26")
    met: list[str] = answer.json()
    while "next" in answer.links:
        assert "colour=red+%26" in answer.links["next"]["url"]
        answer = client.get(answer.links["next"]["url"])
        assert answer.json()
        met += answer.json()
    assert met == expected.split()
    assert client.get(answer.links["first"]["url"]).json() == met[: 4 if "size=" in query else 2]


@pytest.mark.parametrize("how", ["pages", "cursor"])
def test_no_link_is_longer_than_an_accepted_address(client: httpx.Client, how: str) -> None:
    """An address whose quotation marks links would encode beyond the limit is refused, and a shorter one is not."""
    asked = [f"/wares/{how}?page=1&name=" + "'" * number for number in (2000, 8000)]
    if how == "cursor":
        asked = [each.replace("page=1&", "") for each in asked]
    answers = [client.get(client.base_url.copy_with(raw_path=each.encode())) for each in asked]
    assert [each.status_code for each in answers] == [200, 414]
    assert len(answers[0].headers["Link"]) < 65536


def test_the_longest_accepted_address_may_be_a_link(client: httpx.Client) -> None:
    """The limit is that of path and query, without the scheme and the host."""
    longest = "/wares/pages?page=0&size=2&name=".ljust(8192, "x")
    answer = client.get(longest)
    assert (answer.status_code, answer.links["first"]["url"].endswith(longest)) == (200, True)


def test_pages_are_counted(client: httpx.Client) -> None:
    """There is a total, and links to the last page and back; past the end, a page is empty."""
    answer = client.get("/wares/pages/?page=1")
    base = f"{client.base_url}/wares/pages?"
    assert answer.headers["X-Total-Count"] == "5"
    assert {name: link["url"] for name, link in answer.links.items()} == {
        "first": f"{base}page=0&size=2",
        "last": f"{base}page=2&size=2",
        "previous": f"{base}page=0&size=2",
        "prev": f"{base}page=0&size=2",
        "next": f"{base}page=2&size=2",
    }
    assert client.get(f"/wares/pages?page={10**30}").json() == []
    refused = client.get("/wares/pages?page=x&size=y&sort=note").json()["violations"]
    assert [each["field"] for each in refused] == ["page", "size", "sort"]


def _cursor(*values: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


MADE_UP: Final[tuple[list[object], ...]] = ([], [""], ["", "x"], ["", 1, 2], ["name", 1], [None, 1])


@pytest.mark.parametrize("cursor", ["x", "%FF", "é", *(_cursor(*each) for each in MADE_UP)])
def test_a_forged_cursor_is_refused(client: httpx.Client, cursor: str) -> None:
    """A cursor that is made up or belongs to another order is a violation, and never reaches the database."""
    answer = client.get("/wares/cursor", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["violations"][0]["field"]) == (400, "cursor")


@pytest.mark.parametrize("values", [("", 10**30), ("price", 10**400, 5), ("name", "x\0y", 5), ("name", "y" * 99, 5)])
def test_a_cursor_beyond_all_items_finds_nothing(client: httpx.Client, values: tuple[object, ...]) -> None:
    """Values that no column has, such as a number of more than 64 bits, belong to no item, and none follows them."""
    found = client.get("/wares/cursor", params={"cursor": _cursor(*values), "sort": str(values[0])})
    assert (found.status_code, found.json()) == (200, [])


@pytest.mark.parametrize("sort", ["name", "-name", "price,name"])
def test_links_lead_past_items_that_break_later_rules(client: httpx.Client, sort: str) -> None:
    """A new version forbids long names and dear wares: a list of older ones is still read to its end."""
    answer = client.get(f"/wares/strict?size=1&sort={sort}")
    met: list[str] = answer.json()
    while "next" in answer.links:
        answer = client.get(answer.links["next"]["url"])
        met += answer.json()
    first, second = (client.get(f"/wares/pages?size=4&page={page}&sort={sort}").json() for page in (0, 1))
    assert met == first + second


def test_links_keep_each_value_of_another_parameter() -> None:
    """An array is repeated, as in the request; what is absent is left out."""
    since = datetime(2027, 1, 2, tzinfo=UTC)
    page = PAGING.page({}, colour=("red", "blue"), shade=None, shape="round", row=(), since=since)
    assert page.query() == "page=0&size=2&colour=red&colour=blue&shape=round&since=2027-01-02T00%3A00%3A00%2B00%3A00"


class Dated(BaseModel):
    """An item with fields that JSON has as texts."""

    id: int
    day: date
    time: datetime
    key: UUID


def test_values_have_types_that_stores_take() -> None:
    """Databases read fewer notations than pydantic: values of filters and cursors are as the model writes them."""
    names = ("day", "time", "key")
    paging = Paging(model=Dated, sort=names, filters=names, cursor=True)
    key = UUID(int=7)
    page = paging.page({"day": ("0",), "time": ("0",), "key": (key.urn,)})
    assert page.filters == {"day": "1970-01-01", "time": datetime(1970, 1, 1, tzinfo=UTC), "key": str(key)}
    cursor = base64.urlsafe_b64encode(json.dumps(["key,day", key.urn, "0", 1]).encode()).decode()
    assert paging.page({"sort": ("key,day",), "cursor": cursor}).after == (str(key), "1970-01-01", 1)
    assert paging.page({"day": ("soon",)}).is_empty


def test_a_list_has_an_order_of_its_own() -> None:
    """Without `sort`, items come in the declared order, also after a cursor. Clients need not be able to ask for it."""
    paging = replace(PAGING, sort=("name",), order=("-price", "name"), cursor=True)
    page = paging.page({})
    assert page.order == (("price", True), ("name", False), ("id", False))
    ware = {"id": 7, "name": "tea", "price": Decimal(3)}
    cursor = parse_qs(urlsplit(page.links("", [ware] * 3, None)["next"]).query)["cursor"][0]
    assert paging.page({"cursor": cursor}).after == (Decimal(3), "tea", 7)
    assert paging.page({"sort": ("-name",)}).order == (("name", True), ("id", False))


@pytest.mark.parametrize("sort", [("price",), "-id", ("name; DROP TABLE wares",)])
def test_a_field_that_is_not_declared_gets_into_no_sql(sort: Any) -> None:
    """A resource that passes unchecked values on gets an error, not a database's."""
    with pytest.raises(ValueError, match="a request can't sort by"):
        replace(PAGING, sort=("name",)).page({"sort": sort})


def test_an_invalid_declaration_is_refused() -> None:
    """The error names a field that the model lacks, or a name or type that no parameter can have."""
    with pytest.raises(ValueError, match=r"Ware has no field 'nmae', but id, name, price, sold, zoned, local, note"):
        replace(PAGING, sort=("nmae",))

    class Odd(BaseModel):
        id: int
        size: int
        tags: list[str]

    with pytest.raises(ValueError, match="a filter can't be called 'size'"):
        Paging(model=Odd, filters=("size",))
    with pytest.raises(ValueError, match="BaseModel has no field 'id', and no other"):
        Paging(model=BaseModel)
    with pytest.raises(ValueError, match="a filter by 'tags' can't be a parameter"):
        _ = Paging(model=Odd, filters=("tags",)).parameters

"""Serve one of the compared applications on one listener; started by `load.py`.

Prints its port as soon as it serves, then the CPU seconds used so far for each line on standard input, until that ends.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waitress.server import create_server

from plughost.certificates import prepare
from plughost.engines import EngineOptions, Listener, open_engine
from plughost.host import Host
from plughost.http.site import Site
from plughost.memory import set_aside, share_arenas
from plughost.settings import read_settings

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication

    from plughost.settings import Settings

BODY: Final = b'{"sku": "SKU-%012d", "name": "Green tea, 250 g", "price": 19.99, "stock": 12}'
CONFIG: Final = """
data_dir = "data"
log = {{ access = {access}, format = "json" }}
plugins.catalog-v2 = {{ max_products = 1000000000 }}
"""
RIVALS: Final = ("bare", "raw_sqlite", "orm")
"""Modules beside this one, each with a `make_app` that takes the SQLite file to use."""


class Numbered:
    """Gives the body of each POST a SKU of its own, so that every create of a load generator creates."""

    def __init__(self, application: WSGIApplication, first: int) -> None:
        """Wrap an application, whose products are numbered below the first."""
        self._application = application
        self._numbers = itertools.count(first)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        if environ["REQUEST_METHOD"] == "POST":
            body = BODY % next(self._numbers)
            environ["wsgi.input"] = BytesIO(body)
            environ["CONTENT_LENGTH"] = str(len(body))
        return self._application(environ, start_response)


def plughost_site(settings: Settings, plugins: set[str]) -> WSGIApplication:
    """Return plughost's main site with some plugins, and what they require."""
    host = Host(settings, dev=True)
    found = {each.name for each in host.survey().plugins}
    if plugins - found:
        raise SystemExit(f"not installed: {', '.join(sorted(plugins - found))}")
    host.skip(found - plugins)
    generation = host.build()
    host.answered.hand_to(generation.observers())
    return Site("main", generation.sites["main"].app)


def fill(application: WSGIApplication, file: Path, products: int) -> None:
    """Create products: in the table where there is one, which takes no time, else through the application."""
    bodies = [BODY % number for number in range(products)]
    if file.exists():
        rows = [tuple(json.loads(body).values()) for body in bodies]
        with sqlite3.connect(file) as connection:
            connection.executemany("INSERT INTO products (sku, name, price, stock) VALUES (?, ?, ?, ?)", rows)
        connection.close()
        return
    for body in bodies:
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/api/v2/products",
            "QUERY_STRING": "",
            "CONTENT_LENGTH": str(len(body)),
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr,
            "wsgi.input": BytesIO(body),
        }
        list(application(environ, lambda *_: lambda _: None))


def serve(application: WSGIApplication, engine: str, scheme: str, settings: Settings) -> int:
    """Begin to serve an application, and return the port."""
    options = EngineOptions()
    if engine == "waitress-as-it-comes":
        server = create_server(
            application,
            host="127.0.0.1",
            port=0,
            threads=options.threads,
            connection_limit=options.connection_limit,
            channel_request_lookahead=1,
            asyncore_use_poll=True,
        )
        threading.Thread(target=server.run, daemon=True).start()
        return int(server.effective_port)
    listener = Listener(site="main", scheme=scheme, address="127.0.0.1", port=0, engine=engine)  # type: ignore[arg-type]  # checked by argparse
    opened = open_engine(application, listener, options, prepare(settings, dev=True) if scheme == "https" else None)
    opened.start()
    return opened.port


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("app", choices=["plughost", *RIVALS])
    parser.add_argument("--plugins", default="catalog-v2", help="of plughost, separated by commas")
    parser.add_argument("--engine", choices=["waitress", "granian", "waitress-as-it-comes"], default="waitress")
    parser.add_argument("--scheme", choices=["http", "https"], default="http")
    parser.add_argument("--products", type=int, default=0, help="how many there are at first")
    parser.add_argument("--access-log", action="store_true")
    arguments = parser.parse_args()
    share_arenas()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "plughost.toml")
        config.write_text(CONFIG.format(access=str(arguments.access_log).lower()))
        settings = read_settings(config, {})
        file = Path(folder, "data", "stores", "catalog.sqlite3")
        if arguments.app == "plughost":
            application = plughost_site(settings, set(arguments.plugins.split(",")))
        else:
            application = import_module(f"bench.{arguments.app}").make_app(file)
        fill(application, file, arguments.products)
        application = Numbered(application, arguments.products)
        set_aside()
        print(serve(application, arguments.engine, arguments.scheme, settings), flush=True)
        for _ in sys.stdin:
            print(time.process_time(), flush=True)
    os._exit(0)  # connections of the load generator may be open still


if __name__ == "__main__":
    main()

"""Showing: what each page tells of the host, as plain values for its template."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import falcon

from plughost import Check, Health, HostControl, bounded
from plughost.stores import StoreError, browse
from plughost_dev_console.recording import LEVELS, MOST_A_SECOND
from plughost_dev_console.trying import address, offers

if TYPE_CHECKING:
    from plughost import HostView, PluginView
    from plughost.http import Request
    from plughost.stores import OpenStore
    from plughost_dev_console.jobs import Jobs
    from plughost_dev_console.recording import Lines, Requests

T = TypeVar("T")
Shown = Mapping[str, Any]

PAGE_SIZE: Final = 50
_LAST_PAGE: Final = 10_000_000
_LONGEST_VALUE: Final = 200
_CHECK_SECONDS: Final = 3.0
_RENDER_SECONDS: Final = 10.0
_port: Final = re.compile(r":[0-9]+$")


class Showing:
    """Looks at the host for the pages; each method returns what one template shows."""

    def __init__(
        self, host: HostView, control: HostControl, own: str, *, jobs: Jobs, requests: Requests, lines: Lines
    ) -> None:
        """Look at a host.

        Args:
            host: The host.
            control: Has the stores of all plugins.
            own: The console's own plugin.
            jobs: What was done to the host.
            requests: The last requests.
            lines: The last lines of the log.
        """
        self._host = host
        self._control = control
        self._own = own
        self._jobs = jobs
        self._requests = requests
        self._lines = lines

    def overview(self, req: Request) -> Shown:
        """Tell what is installed, what it mounted, and how to try it."""
        cards: list[dict[str, Any]] = [
            {"plugin": each, "summary": summary_of(each), "offers": list(offers(self._host, each, _name(req)))}
            for each in sorted(self._host.plugins, key=lambda plugin: plugin.name)
            if each.name != self._own
        ]
        return {
            "active": [card for card in cards if card["offers"] and not self._is_extra(card["plugin"])],
            "extras": [card for card in cards if card["offers"] and self._is_extra(card["plugin"])],
            "silent": [card for card in cards if not card["offers"] and card["plugin"].state == "active"],
            "troubled": [each for each in self._host.plugins if each.reason or each.trouble],
            "disabled": [each for each in self._host.plugins if each.state == "disabled"],
            "sites": self._sites(req),
            "uptime": self._uptime(),
            "serving": sum(each.state == "active" for each in self._host.plugins),
            "total": len(self._host.plugins),
        }

    def plugins(self, req: Request, job: str) -> Shown:
        """List the plugins, and the result of what was done last."""
        return {
            "plugins": [{"plugin": each, "seconds": sum(each.seconds.values())} for each in self._host.plugins],
            "own": self._own,
            "job": self._jobs.get(job),
            "job_name": job,
        }

    def plugin(self, req: Request, name: str) -> Shown:
        """Tell all of one plugin."""
        plugin = next((each for each in self._host.plugins if each.name == name), None)
        if plugin is None:
            raise falcon.HTTPNotFound(description=f"There is no plugin {name}.")
        return {
            "title": name,
            "plugin": plugin,
            "summary": summary_of(plugin),
            "offers": list(offers(self._host, plugin, _name(req))),
            "dependents": [each.name for each in self._host.plugins if name in each.requires],
            "settings": [each for each in self._values() if each["key"].startswith(f"plugins.{name}.")],
            "own": self._own,
        }

    def routes(self, req: Request) -> Shown:
        """List every operation of every site."""
        found = [each for plugin in self._host.plugins for each in offers(self._host, plugin, _name(req))]
        return {"offers": sorted(found, key=lambda each: (is_extra(each.path), each.path))}

    def requests(self, req: Request) -> Shown:
        """List the last requests, newest first."""
        return {"requests": self._requests.since(0)[::-1], "most_a_second": MOST_A_SECOND}

    def log(self, req: Request) -> Shown:
        """List the last lines of the log."""
        return {"lines": self._lines.since(0), "levels": LEVELS}

    def stores(self, req: Request) -> Shown:
        """List the stores and their tables."""
        return {"stores": [_store(each) for each in self._control.stores.values()]}

    def table(self, req: Request, store: str, table: str, q: str, page: int) -> Shown:
        """Show a page of a table's rows."""
        opened = self._control.stores.get(store)
        if opened is None or table not in opened.declared.tables:
            raise falcon.HTTPNotFound(description=f"There is no table {table} in a store {store}.")
        search = q[:_LONGEST_VALUE]
        page = min(max(page, 1), _LAST_PAGE)
        shown: dict[str, Any] = {"title": table, "store": opened, "table": table, "search": search, "page": page}
        try:
            found = browse(opened, table, search=search, offset=(page - 1) * PAGE_SIZE, limit=PAGE_SIZE)
        except StoreError as error:
            return {**shown, "problem": str(error), "columns": (), "rows": (), "total": 0, "last": 0}
        return {
            **shown,
            "problem": "",
            "columns": found.columns,
            "rows": [[_cell(value) for value in row] for row in found.rows],
            "total": found.total,
            "last": -(-found.total // PAGE_SIZE),
        }

    def settings(self, req: Request) -> Shown:
        """List every setting in force."""
        return {"settings": self._values()}

    def health(self, req: Request) -> Shown:
        """Run every health check, side by side."""
        asked = sorted(self._host.checks, key=lambda check: check.name)
        owners = {check.name: plugin.name for plugin in self._host.plugins for check in plugin.declared.checks}
        owners.update({f"store {name}": store.plugin for name, store in self._control.stores.items()})
        with ThreadPoolExecutor(max(1, min(len(asked), 8)), thread_name_prefix="console:health") as pool:
            found = list(pool.map(_run, asked))
        results = [
            {"check": each, "plugin": owners.get(each.name, "host"), "health": health, "kinds": sorted(each.kinds)}
            for each, health in zip(asked, found, strict=True)
        ]
        return {"results": results, "up": all(health.up for health in found)}

    def hooks(self, req: Request) -> Shown:
        """List the hooks and who implements them, in the order in which they are asked."""
        active = [each for each in self._host.plugins if each.hooks]
        hooks = [
            {
                "name": name,
                "about": about,
                "plugins": [each.name for each in active if name in each.hooks],
            }
            for name, about in self._host.hooks.items()
        ]
        owners = {one.name: plugin.name for plugin in self._host.plugins for one in plugin.declared.middleware}
        sites = [
            {"site": name, "middleware": [(one, owners.get(one.name, "")) for one in site.middleware]}
            for name, site in self._host.sites.items()
        ]
        return {"hooks": hooks, "sites": sites}

    def load(self, req: Request) -> Shown:
        """Tell how long each plugin took, stage by stage, and what the last reload did."""
        spent = [(each, sum(each.seconds.values())) for each in self._host.plugins if each.seconds]
        longest = max((total for _, total in spent), default=0.0) or 1.0
        rows = [
            {"plugin": plugin, "seconds": total, "share": round(100 * total / longest, 1)}
            for plugin, total in sorted(spent, key=lambda pair: -pair[1])
        ]
        stages: dict[str, float] = {}
        for plugin, _ in spent:
            for stage, seconds in plugin.seconds.items():
                stages[stage] = stages.get(stage, 0.0) + seconds
        report = self._host.last_reload
        return {
            "rows": rows,
            "stages": stages,
            "total": sum(total for _, total in spent),
            "started_at": self._host.started_at,
            "report": report.as_plain() if report is not None else None,
        }

    def _is_extra(self, plugin: PluginView) -> bool:
        """Whether a plugin serves what is around services, such as probes."""
        return all(is_extra(prefix) for prefix in plugin.declared.prefixes())

    def _sites(self, req: Request) -> list[dict[str, Any]]:
        listeners = self._host.listeners
        return [
            {
                "name": name,
                "listeners": [
                    (f"{each.scheme}://{_name(req)}:{port}", each.engine)
                    for each, port in sorted(listeners.items(), key=lambda pair: pair[0].scheme)
                    if each.site == name
                ],
                "address": address(self._host, name, _name(req)),
            }
            for name in sorted(self._host.sites, key=lambda name: (name != "main", name))
        ]

    def _uptime(self) -> timedelta:
        started = self._host.started_at
        return datetime.now(UTC) - started if started is not None else timedelta()

    def _values(self) -> list[dict[str, Any]]:
        return [
            {
                "key": each.key,
                "value": _written(each.value),
                "default": _written(each.default),
                "source": each.source,
                "changed": each.source != "default",
            }
            for each in self._host.settings()
        ]


def is_extra(path: str) -> bool:
    """Tell whether a path is one of those around the services."""
    return path == "/" or path.startswith("/q/")


def summary_of(plugin: PluginView) -> str:
    """Return the sentence with which a plugin's distribution describes itself."""
    try:
        return metadata.metadata(plugin.distribution)["Summary"] or ""
    except (metadata.PackageNotFoundError, KeyError):
        return ""


def attempted(work: Callable[[], T]) -> tuple[str, T | None]:
    """Run a plugin's code within bounds.

    Returns:
        What went wrong, and None; or an empty text and what it returned.
    """
    try:
        return "", bounded(work, _RENDER_SECONDS, "console:page")
    except Exception as error:  # noqa: BLE001 - it is a plugin's code; the page shows what came of it
        return f"{type(error).__name__}: {error}", None


def _name(req: Request) -> str:
    """Return the host's name in the address of this page, which the guard has checked."""
    return _port.sub("", req.env["HTTP_HOST"])


def _run(check: Check) -> Health:
    try:
        return bounded(check.check, _CHECK_SECONDS, f"console:{check.name}")
    except Exception as error:  # noqa: BLE001 - raising is how a check may say that it is down
        return Health(up=False, data={"error": f"{type(error).__name__}: {error}"})


def _store(store: OpenStore[Any]) -> Shown:
    config = store.engine.config
    if config.url is None:
        place = str(config.path)
    else:
        url = urlsplit(config.url)
        place = f"{url.hostname or 'local'}:{url.port or 5432}{url.path}"
    tables = []
    for table in store.declared.tables:
        problem, found = attempted(partial(browse, store, table, limit=1))
        tables.append({"name": table, "total": None if found is None else found.total, "problem": problem})
    return {"store": store, "place": place, "tables": tables}


def _cell(value: object) -> Shown:
    if value is None:
        return {"text": "NULL", "kind": "null", "more": False}
    text = value.hex(" ") if isinstance(value, bytes) else str(value)
    kind = "number" if isinstance(value, (int, float)) or type(value).__name__ == "Decimal" else "text"
    return {"text": text[:_LONGEST_VALUE], "kind": kind, "more": len(text) > _LONGEST_VALUE}


def _written(value: object) -> str:
    if value is None or value in ("", [], (), {}):
        return "none" if value is None else "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_written(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_items(value))
    return str(value)


def _items(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        yield f"({_written(value)})" if isinstance(value, (Mapping, list)) else _written(value)

"""The data of each page, as plain values for its template."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import falcon

from plughost import Check, Health, TookTooLong, bounded
from plughost_dev_console.console import NAVIGATION
from plughost_dev_console.guard import PREFIX
from plughost_dev_console.lines import LEVELS
from plughost_dev_console.offers import offers
from plughost_dev_console.recording import MAX_PER_SECOND, MAX_SHOWN

if TYPE_CHECKING:
    from plughost import PluginView, RequestRecord, Value
    from plughost.http import Request
    from plughost_dev_console.console import Console

T = TypeVar("T")
Shown = Mapping[str, Any]

_CHECK_SECONDS: Final = 3.0
_RENDER_SECONDS: Final = 10.0
_MOST_OF_A_PLUGIN: Final = 5
_port: Final = re.compile(r":[0-9]+$")


class ViewData:
    """Collects data about the host. Each method returns the values of one template."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._host = console.host
        self._hanging: dict[str, tuple[Check, threading.Event]] = {}  # by name, with when it has returned

    def overview(self, req: Request) -> Shown:
        """Return the installed plugins, their operations, and how to try them."""
        cards: list[dict[str, Any]] = [
            {
                "plugin": each,
                "summary": summary_of(each),
                "offers": list(offers(self._host, each, _name(req))),
                "is_extra": all(map(is_extra, each.declared.prefixes())),  # such as probes
            }
            for each in sorted(self._host.plugins, key=lambda plugin: plugin.name)
            if each.name != self._console.own
        ]
        return {
            "active": [card for card in cards if card["offers"] and not card["is_extra"]],
            "extras": [card for card in cards if card["offers"] and card["is_extra"]],
            "silent": [card for card in cards if not card["offers"] and card["plugin"].state == "active"],
            "troubled": [each for each in self._host.plugins if each.reason or each.trouble],
            "refused": self._refusals(),
            "disabled": [each for each in self._host.plugins if each.state == "disabled"],
            "sites": {
                name: self._addresses(req, name)
                for name in sorted(self._host.sites, key=lambda name: (name != "main", name))
            },
            "newcomer": all(each.distribution.startswith("plughost-") for each in self._host.plugins),
            **self._vitals(),
            "uptime": datetime.now(UTC) - (self._host.started_at or datetime.now(UTC)),
            "serving": sum(each.state == "active" for each in self._host.plugins),
            "total": len(self._host.plugins),
        }

    def live_vitals(self, req: Request) -> Shown:
        """Return the vital signs, which the overview asks for again and again."""
        req.context.unlogged = True
        return self._vitals()

    def _vitals(self) -> Shown:
        def check() -> tuple[tuple[str, ...], int]:
            found = self._healths()
            return tuple(each.name for each, health in found if not health.up), len(found)

        return {"signs": self._console.vitals.signs(check)}

    def palette(self) -> list[dict[str, str]]:
        """Return the entries of the command palette: name, kind and address."""
        found = [(name, "page", path) for path, name in NAVIGATION]
        for each in self._host.plugins:
            found.append((each.name, f"plugin, {each.state}", f"/plugins/{each.name}"))
            found += [
                (page.title, f"page of {each.name}", f"/pages/{each.name}/{page.name}") for page in each.declared.pages
            ]
            found += [(f"{one.method} {one.path}", "try", one.form) for one in offers(self._host, each, "localhost")]
        found += [(each.key, "setting", f"/settings/edit?key={quote(each.key)}") for each in self._host.settings()]
        return [{"name": name, "kind": kind, "href": PREFIX + path} for name, kind, path in found]

    def threads(self, req: Request) -> Shown:
        """Return the threads and connections that plugins use."""
        loads, in_flight = self._host.loads, self._host.in_flight_by_plugin
        return {
            "loads": [
                (name or "no plugin", in_flight.get(name, 0), loads.get(name)) for name in sorted({*loads, *in_flight})
            ],
            "figures": sorted(self._host.store_figures.items()),
        }

    def plugins(self, req: Request, job: str) -> Shown:
        """List the plugins, with the result of a job."""
        installed = self._host.plugins
        return {
            "plugins": [
                {"plugin": each, "seconds": sum(each.seconds.values()), "stops": dependents_of(each.name, installed)}
                for each in sorted(installed, key=lambda each: (not (each.reason or each.trouble), each.name))
            ],
            "refused": self._refusals(),
            "job": self._console.jobs.get(job),
            "job_name": job,
        }

    def plugin(self, req: Request, name: str) -> Shown:
        """Return the details of one plugin."""
        plugin = next((each for each in self._host.plugins if each.name == name), None)
        if plugin is None:
            raise falcon.HTTPNotFound(description=f"There is no plugin {name}.")
        return {
            "title": name,
            "plugin": plugin,
            "summary": summary_of(plugin),
            "offers": list(offers(self._host, plugin, _name(req))),
            "stops": dependents_of(name, self._host.plugins),
            "refused": self._refusals().get(name, ""),
            "dependents": [each.name for each in self._host.plugins if name in each.requires],
            "settings": [each for each in self._host.settings() if each.key.startswith(f"plugins.{name}.")],
            "lines": self._console.lines.since(0, level="warning", plugin=name)[: -_MOST_OF_A_PLUGIN - 1 : -1],
        }

    def page(self, req: Request, plugin: str, page: str) -> Shown:
        """Return the HTML of another plugin's page, or why the plugin failed to render it."""
        active = (each for each in self._host.plugins if each.name == plugin and each.state == "active")
        found = next((one for each in active for one in each.declared.pages if one.name == page), None)
        if found is None:
            raise falcon.HTTPNotFound(description=f"The plugin {plugin} has no page {page}.")
        problem, body = run_bounded(found.render)
        return {"title": found.title, "plugin": plugin, "body": body or "", "problem": problem}

    def routes(self, req: Request) -> Shown:
        """List every operation of every site."""
        found = [each for plugin in self._host.plugins for each in offers(self._host, plugin, _name(req))]
        return {"offers": sorted(found, key=lambda each: (is_extra(each.path), each.path))}

    def requests(self, req: Request, **wanted: Any) -> Shown:
        """List the last requests, newest or slowest first."""
        found = self._console.requests.since(0, **wanted)[::-1]
        return {
            "requests": found[:MAX_SHOWN],
            "found": len(found),
            "wanted": wanted,
            "served": sorted(each.name for each in self._host.plugins if each.state == "active"),
            "most_a_second": MAX_PER_SECOND,
        }

    def request(self, req: Request, number: str) -> Shown:
        """Return everything that is recorded about one request."""
        shown, record = self._console.requests.get(number)
        exchange = self._console.exchanges.of(record.arrived)
        sent, answered = exchange.shown() if exchange is not None else ({}, {})
        return {
            "title": f"{record.method} {shown['path']}",
            "request": shown,
            "route": record.route,
            "timings": timings(record),
            "exchange": exchange,
            "sent": sent,
            "answered": answered,
            "lines": self._console.lines.since(0, request=record.request_id),
        }

    def log(self, req: Request, level: str, q: str) -> Shown:
        """List the last lines of the log, newest first."""
        found = self._console.lines.since(0, level=level, q=q)[::-1]
        return {"lines": found[:MAX_SHOWN], "found": len(found), "levels": LEVELS, "level": level, "q": q}

    def settings(self, req: Request) -> Shown:
        """List every setting in force, by table."""
        groups: dict[str, list[Value]] = {}
        for each in self._host.settings():
            groups.setdefault(each.key.rpartition(".")[0], []).append(each)
        return {"groups": groups, "number": sum(map(len, groups.values()))}

    def health(self, req: Request) -> Shown:
        """Run all health checks concurrently."""
        owners = {check.name: plugin.name for plugin in self._host.plugins for check in plugin.declared.checks}
        owners |= {f"store {name}": store.plugin for name, store in self._console.control.stores.items()}
        found = self._healths()
        results = [
            {"check": each, "plugin": owners.get(each.name, "host"), "health": health, "kinds": sorted(each.kinds)}
            for each, health in found
        ]
        return {"results": results, "up": all(health.up for _, health in found)}

    def hooks(self, req: Request) -> Shown:
        """List the hooks and their implementations, in call order."""
        hooks = [
            {"name": name, "about": about, "plugins": [each.name for each in self._host.plugins if name in each.hooks]}
            for name, about in self._host.hooks.items()
        ]
        owners = {one.name: plugin.name for plugin in self._host.plugins for one in plugin.declared.middleware}
        sites = [
            {"site": name, "middleware": [(one, owners.get(one.name, "")) for one in site.middleware]}
            for name, site in self._host.sites.items()
        ]
        return {"hooks": hooks, "sites": sites}

    def jobs(self, req: Request) -> Shown:
        """Return the scheduled jobs of plugins, with their results."""
        return {"jobs": self._host.jobs}

    def job(self, job: str) -> Shown:
        """Return whether one of the console's own jobs is done."""
        found = self._console.jobs.get(job)
        if found is None:
            raise falcon.HTTPNotFound
        return {"done": found["done"]}

    def load(self, req: Request) -> Shown:
        """Return the load time of each plugin by stage, and the result of the last reload."""
        loaded = [(sum(each.seconds.values()), each) for each in self._host.plugins if each.seconds]
        loaded.sort(key=lambda pair: -pair[0])
        longest = loaded[0][0] if loaded else 0.0
        stages: Counter[str] = Counter()
        for _, plugin in loaded:
            stages.update(plugin.seconds)
        return {
            "rows": [
                {"plugin": plugin, "seconds": total, "share": round(100 * total / (longest or 1.0), 1)}
                for total, plugin in loaded
            ],
            "stages": stages,
            "total": sum(total for total, _ in loaded),
        }

    def _refusals(self) -> dict[str, str]:
        """Return why the last reload was refused, by plugin, for those that still serve."""
        report = self._host.last_reload
        if report is None or report.swapped:
            return {}
        active = {each.name for each in self._host.plugins if each.state == "active"}
        reasons = {label.partition(" ")[0]: why for label, why in (*report.failed, *report.blocked)}
        return {name: why for name, why in reasons.items() if name in active}

    def _healths(self) -> list[tuple[Check, Health]]:
        """Run all health checks concurrently."""
        asked = sorted(self._host.checks, key=lambda check: check.name)
        with ThreadPoolExecutor(max(1, min(len(asked), 8)), thread_name_prefix="console:health") as pool:
            return list(zip(asked, pool.map(self._run, asked), strict=True))

    def _run(self, check: Check) -> Health:
        """Run a health check, unless its last run still hangs: that one holds a thread already."""
        hanging, its_return = self._hanging.get(check.name, (None, None))
        if its_return is not None and hanging == check and not its_return.is_set():
            return Health(up=False, data={"error": "its last run has not returned yet"})
        returned = threading.Event()

        def run() -> Any:
            try:
                return check.check()
            finally:
                returned.set()

        try:
            found = bounded(run, _CHECK_SECONDS, f"console:{check.name}")
            if isinstance(found, Health):
                return replace(found, data={str(name): value for name, value in found.data.items()})
            return Health(up=False, data={"error": f"it returned a {type(found).__name__}, and no Health"})
        except BaseException as error:  # noqa: BLE001 - a check that raises is down, also by sys.exit
            if isinstance(error, TookTooLong):
                self._hanging[check.name] = check, returned
            return Health(up=False, data={"error": f"{type(error).__name__}: {error}"})

    def _addresses(self, req: Request, site: str) -> list[str]:
        listeners = sorted((each.scheme, port) for each, port in self._host.listeners.items() if each.site == site)
        return [f"{scheme}://{_name(req)}:{port}" for scheme, port in listeners]


def dependents_of(name: str, installed: tuple[PluginView, ...]) -> list[str]:
    """Return the active plugins that require a plugin."""
    return sorted(each.name for each in installed if name in each.requires and each.state == "active")


def timings(record: RequestRecord) -> list[tuple[str, float, float]]:
    """Return the stages of a request: name, seconds, and percentage of the total."""
    parts = [("total", record.seconds)]
    if record.timings is not None:
        queued, resource, store = record.timings
        parts = [
            ("waited for a thread", queued),
            ("host and middleware", max(0.0, record.seconds - resource)),
            ("resource, without stores", max(0.0, resource - store)),
            ("stores", store),
            ("total", queued + record.seconds),
        ]
    total = parts[-1][1] or 1e-9
    return [(name, seconds, min(100.0, 100 * seconds / total)) for name, seconds in parts]


def is_extra(path: str) -> bool:
    """Return whether a path is auxiliary, not one of a service."""
    return path == "/" or path.startswith("/q/")


def summary_of(plugin: PluginView) -> str:
    """Return the summary of a plugin's distribution."""
    try:
        told = metadata.metadata(plugin.distribution).get_all("Summary")  # a missing key warns on Python 3.12 and later
    except (metadata.PackageNotFoundError, KeyError):
        return ""
    return told[0] if told else ""


def run_bounded(work: Callable[[], T]) -> tuple[str, T | None]:
    """Run a plugin's code with a time limit. Return an empty string and the result, or an error message and None."""
    try:
        return "", bounded(work, _RENDER_SECONDS, "console:page")
    except Exception as error:  # noqa: BLE001 - a plugin's code may raise anything; the page shows it
        return f"{type(error).__name__}: {error}", None


def _name(req: Request) -> str:
    """Return the host name of this page's URL, which the guard has checked."""
    return _port.sub("", req.env["HTTP_HOST"])

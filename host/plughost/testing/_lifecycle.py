"""Part of the conformance suite: a plugin survives reloads and upgrades, and leaves nothing behind."""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Final, TypeVar

import httpx
import pytest

from plughost.http._events import MEDIA_TYPE
from plughost.testing._databases import store_settings
from plughost.testing._hosts import RunningHost, certificate
from plughost.testing._operations import Suite, operation_calls, remove_modules, send

T = TypeVar("T")

_TIMEOUT: Final = 15.0
_ATTEMPTS: Final = 3
_DESCRIPTORS: Final = Path("/proc/self/fd")


class LifecycleTests(Suite):
    """Tests of reloads, upgrades and drains, and of what is left afterwards."""

    earlier: ClassVar[Path | None]

    def test_it_serves_on_after_a_reload_and_leaves_no_thread(self) -> None:
        """The host reloads with the plugin and stops; then no thread of the plugin is left."""
        before = set(threading.enumerate())
        with self.serving() as host:
            report = host.host.reload()
            why = "; ".join((*report.problems, *report.restart_needed))
            assert report.ok, f"{self.plugin} does not live through a reload: {why}"
        left = _eventually(lambda: _threads_since(before))
        assert not left, f"{self.plugin} leaves the threads {left} behind when its host stops: end them in `stopping`"

    def test_its_event_streams_end_when_the_drain_begins(self) -> None:
        """When the host stops, a client that reads events gets a complete end, not a cut connection."""
        with self.serving() as host, self.clients(host) as client_of, ExitStack() as stack:
            streams = []
            for call in operation_calls(host, self.plugin):
                if call.method == "GET" and call.streams_events:
                    headers = {**call.headers, "Accept": MEDIA_TYPE}
                    begun = client_of(call.site).stream("GET", call.url, headers=headers)
                    answer = stack.enter_context(begun)
                    if answer.status_code == 200:
                        streams.append((call, answer))
            with ThreadPoolExecutor(max(1, len(streams))) as pool:
                reading = [(call, pool.submit(_ends_completely, answer)) for call, answer in streams]
                host.host.stop()
            cut = [call.label for call, whole in reading if not whole.result()]
            assert not cut, (
                f"the event streams of {', '.join(cut)} don't end when the host drains:"
                " send them with plughost.http.send_events, or end them in `draining`"
            )

    def test_it_leaves_no_file_and_no_connection(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Once its host has stopped, all it opened is closed; it has written only into its data folder."""
        certificate()  # which all hosts of this process share
        with monkeypatch.context() as patched:
            for name in ("working", "temporary"):
                (tmp_path / name).mkdir()
            patched.chdir(tmp_path / "working")
            patched.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
            self._serve_once(tmp_path / "data")  # what a process opens once, and keeps, is no leak
            # A leak recurs each time. A file that is open once may be another test host's.
            for _ in range(_ATTEMPTS):
                before = _open_files()
                self._serve_once(tmp_path / "data")
                open_files = _eventually(lambda before=before: sorted({file for _, file in _open_files() - before}))  # type: ignore[misc] # mypy can't type a lambda's default
                if not open_files:
                    break
        written = [
            str(each.relative_to(tmp_path)) for name in ("working", "temporary") for each in (tmp_path / name).iterdir()
        ]
        assert not open_files, (
            f"{self.plugin} leaves {', '.join(open_files)} open when its host stops: close it in `stopping`"
        )
        assert not written, f"{self.plugin} leaves {', '.join(written)} behind: write into `context.data_dir`"

    def test_its_modules_can_be_replaced(self) -> None:
        """When a host imports its modules afresh, as in an upgrade, nothing holds the old ones."""
        path = list(sys.path)
        with self.fresh_modules():
            with self.serving():
                pass
            fresh = [(name, weakref.ref(module)) for name, module in remove_modules(self.package).items()]
            added = [each for each in sys.path if each not in path]
        assert not added, f"{self.plugin} leaves {', '.join(added)} in sys.path"
        kept = _eventually(lambda: sorted(name for name, module in fresh if module() is not None))
        assert not kept, (
            f"{self.plugin} leaves the modules {', '.join(kept)} held after an upgrade: undo it in `stopping`"
        )

    @pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
    def test_it_takes_over_from_an_earlier_version(self, dialect: str, tmp_path: Path) -> None:
        """A host with the earlier version and its rows reloads to this version, and serves those rows."""
        if self.earlier is None:
            pytest.skip("no upgrade is tested: conformance(earlier=...) takes the wheel of a published version")
        with zipfile.ZipFile(self.earlier) as wheel:
            wheel.extractall(tmp_path / "earlier")
        with store_settings(dialect) as stores, self.fresh_modules():
            sys.path.insert(0, str(tmp_path / "earlier"))
            options = {"settings": {**self.settings, **stores}, "data_dir": tmp_path / "data"}
            fault = self._upgrade(str(tmp_path / "earlier"), options)
        assert not fault, f"{self.plugin} can't take over from {self.earlier.name}: {fault}"

    def _upgrade(self, earlier: str, options: dict[str, Any]) -> str:
        """Return the fault of an upgrade from a folder on `sys.path` to the installed version, or an empty text."""
        with self.serving(**options) as host:
            with self.clients(host) as client_of:
                for call in operation_calls(host, self.plugin):
                    for body in call.operation.examples.values():
                        client_of(call.site).request(call.method, call.url, headers=call.headers, json=body)
            before = self._read_statuses(host)
            sys.path.remove(earlier)
            report = host.host.reload()
            if not report.ok:
                reasons = [*report.problems, *(reason for _, reason in (*report.failed, *report.blocked))]
                return f"the reload fails: {'; '.join(reasons)}"
            if fault := _regression(before, self._read_statuses(host)):
                return f"after the reload {fault}"
        with self.serving(**options) as host:
            fault = _regression(before, self._read_statuses(host))
            return f"after a restart {fault}" if fault else ""

    def _serve_once(self, data_dir: Path) -> None:
        """Run a host and call each operation that reads, since much is opened only then."""
        with self.serving(data_dir=data_dir) as host:
            self._read_statuses(host)

    def _read_statuses(self, host: RunningHost) -> dict[str, int]:
        """Return the status of each operation that reads."""
        with self.clients(host) as client_of:
            return {
                call.label: send(client_of(call.site), call, "GET", call.url, headers=call.headers).status_code
                for call in operation_calls(host, self.plugin)
                if call.method == "GET" and not call.streams_events
            }


def _ends_completely(answer: httpx.Response) -> bool:
    """Return whether a response ends completely, instead of being cut off."""
    try:
        for _ in answer.iter_raw():
            pass
    except httpx.TransportError:
        return False
    return True


def _eventually(find: Callable[[], Collection[T]]) -> Collection[T]:
    """Return what `find` finds once it finds nothing or time is up: cleanup may take a moment."""
    until = monotonic() + _TIMEOUT
    while found := find():
        if monotonic() > until:
            break
        gc.collect()
        threading.Event().wait(0.02)
    return found


def _threads_since(before: set[threading.Thread]) -> list[str]:
    """Return the names of threads that began since, except the host's own."""
    left = set(threading.enumerate()) - before
    return sorted(each.name for each in left if not each.name.startswith("plughost-"))


def _open_files() -> set[tuple[str, str]]:
    """Return the descriptors of this process and what they refer to; none if the system doesn't tell."""
    found = set()
    for each in _DESCRIPTORS.iterdir() if _DESCRIPTORS.is_dir() else ():
        with suppress(OSError):  # such as the one of the folder itself
            found.add((each.name, str(each.readlink())))
    return found


def _regression(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Return which operation now fails, or no longer finds what it found. Empty if none does."""
    for label, status in now.items():
        if status >= 500 or (before.get(label, 0) < 300 <= status and label in before):
            return f"{label} answers {status}; before, it was {before.get(label, 'not there')}"
    return ""

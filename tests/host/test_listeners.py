"""A host's listeners: their limits, when they are open, and where HTTPS is."""

from __future__ import annotations

import resource
import socket
import sys
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.host.plugins import Plugin, Speaker, group_of, reason, serving

from plughost import Store, hookimpl
from plughost.http import Request, secure_url
from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    from pathlib import Path

    import falcon


class _Measures:
    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Answer with the size of the body."""
        resp.media = len(req.bounded_stream.read())


class _Located:
    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Answer with the resource's address over HTTPS."""
        resp.media = secure_url(req)


def test_plain_http_names_the_port_of_https() -> None:
    """A resource that must not be asked in the open can say where else, even if the system chose the port."""
    plugin = Plugin(register_routes=lambda context: [group_of(_Located())])
    with running_host(distributions=[plugin_distribution("located", plugin)]) as host, host.client() as client:
        port = httpx.URL(host.url("main", "https")).port
        url = client.base_url.copy_with(scheme="https", port=port, path="/say")
        assert client.get("/say").json() == str(url)


@pytest.mark.parametrize(("limit", "warned"), [(8, False), (sys.maxsize, True)])
def test_a_connection_limit_beyond_the_systems_is_told(
    caplog: pytest.LogCaptureFixture, limit: int, warned: bool
) -> None:
    """The warning names the setting and how many files the system lets the process open."""
    settings = {"sites": {"main": {"connection_limit": limit}}}
    with running_host(distributions=[plugin_distribution("a", Speaker("hello"))], settings=settings):
        assert ("sites.main.connection_limit, since this process may open" in caplog.text) == warned


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse to raise it to an unlimited number")
def test_a_host_may_open_as_many_files_as_the_system_allows() -> None:
    """A service manager or a shell sets a lower limit, which a process may raise, for programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        with running_host(distributions=[plugin_distribution("a", Speaker("hello"))]):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("engine", ["waitress", "granian"])
def test_a_reload_changes_the_limit_of_bodies(engine: str) -> None:
    """A plugin that comes with a larger limit than all others gets larger bodies, on listeners that stay open."""
    installed = [plugin_distribution("small", serving(_Measures(), "/small"))]
    settings = {"body_limit": 1000, "sites": {"main": {"http_engine": engine}}}
    with running_host(distributions=installed, settings=settings) as host, host.client() as client:
        assert client.post("/small", content=b"x" * 5000).status_code == 413
        installed.append(plugin_distribution("large", serving(_Measures(), "/large", body_limit=5000)))
        assert host.host.reload().added == ("large",)
        assert client.post("/large", content=b"x" * 5000).json() == 5000
        assert client.post("/small", content=b"x" * 5000).status_code == 413


def test_a_site_whose_only_plugin_cannot_be_migrated_is_closed(tmp_path: Path) -> None:
    """Its address is bound before the migration, and released after it: nobody would answer there."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_fail.sql").write_text("NONSENSE;")
    failing = Plugin(
        register_stores=lambda context: [Store(name="a", migrations=tmp_path, tables=())],
        register_routes=lambda context: [group_of(_Located(), site="library")],
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    installed = [plugin_distribution("good", Speaker("good")), plugin_distribution("failing", failing)]
    settings = {"sites": {"library": {"listeners": ["http"], "http_port": address[1]}}}
    with running_host(distributions=installed, settings=settings) as host:
        assert reason(host, "failing").startswith("failed: store")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 20)


def test_a_refused_reload_leaves_no_port_open(tmp_path: Path) -> None:
    """The address of a further site is bound before the migration that fails, and nobody would answer there."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_fail.sql").write_text("NONSENSE;")
    failing = Speaker("failing")
    vars(failing)["register_stores"] = hookimpl(lambda context: [Store(name="a", migrations=tmp_path, tables=())])
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    installed = [plugin_distribution("one", Speaker("one"), version="1")]
    settings = {"sites": {"library": {"listeners": ["http"], "http_port": address[1]}}}
    with running_host(distributions=installed, settings=settings) as host:
        installed[0] = plugin_distribution("one", failing, version="2")
        installed.append(plugin_distribution("two", Speaker("two", site="library")))
        assert host.host.reload().problems == ("one (plughost-one 2) would be failed",)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 20)

"""Files as responses: ranges, conditions and validators according to RFC 9110, on each engine."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.lanes import LANES, Lane

from plughost import Operation, Route, RouteGroup, hookimpl
from plughost.http import send_file
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon
    import httpx

    from plughost import PluginContext

DATA = bytes(range(256)) * 1000
CHANGED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TAG = f"{int(CHANGED.timestamp()) * 10**9:x}-{len(DATA):x}"


class Files:
    """Sends files of a folder, or what the test chooses."""

    def __init__(self) -> None:
        """Start without a folder."""
        self.folder = Path()
        self.memory: io.BytesIO = io.BytesIO()

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Send a file of the folder."""
        path = self.folder / (req.get_param("at") or name)
        send_file(req, resp, path, download_as=req.get_param("as") or "")

    def on_get_memory(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Send a file in memory."""
        send_file(req, resp, self.memory, media_type="text/x-test", etag="own")

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount it."""
        get = {"GET": Operation(summary="Get it", produces=())}
        return [
            RouteGroup(prefix="/files", routes=(Route("/{name}", self, get), Route("", self, get, suffix="memory")))
        ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The plugin, with a file."""
    plugin = Files()
    plugin.folder = tmp_path_factory.mktemp("files")
    path = plugin.folder / "data.bin"
    path.write_bytes(DATA)
    os.utime(path, (CHANGED.timestamp(), CHANGED.timestamp()))
    plugin.folder.joinpath("loop").symlink_to("loop")
    plugin.folder.joinpath("folder").mkdir()
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(plugin.folder / "socket"))
    return plugin


@pytest.fixture(scope="module")
def hosts(files: Files) -> Iterator[dict[str, RunningHost]]:
    """A host on each engine."""
    with ExitStack() as stack:
        running = {}
        for engine in ("waitress", "granian"):
            settings = {"sites": {"main": {"http_engine": engine}}}
            host = running_host(distributions=[plugin_distribution("files", files)], settings=settings)
            running[engine] = stack.enter_context(host)
        yield running


@pytest.fixture(params=LANES, ids=str)
def client(request: pytest.FixtureRequest, hosts: dict[str, RunningHost]) -> Iterator[httpx.Client]:
    """A client on each lane."""
    lane: Lane = request.param
    with hosts[lane.engine].client(scheme=lane.scheme, http2=lane.http2) as opened:
        opened.headers["Accept-Encoding"] = "identity"
        yield opened


def test_a_file_has_its_validators(client: httpx.Client) -> None:
    """The whole file has its length, type, tag, time and Accept-Ranges; HEAD has the same."""
    for method in ("GET", "HEAD"):
        answer = client.request(method, "/files/data.bin")
        assert answer.status_code == 200
        assert {name: answer.headers.get(name) for name in ("Content-Length", "Content-Type", "ETag")} == {
            "Content-Length": str(len(DATA)),
            "Content-Type": "application/octet-stream",
            "ETag": f'"{TAG}"',
        }
        assert answer.headers["Last-Modified"] == "Fri, 02 Jan 2026 03:04:05 GMT"
        assert answer.headers["Accept-Ranges"] == "bytes"
        assert answer.content == (DATA if method == "GET" else b"")


def test_a_range_of_a_head_is_ignored(client: httpx.Client) -> None:
    """Ranges are defined for GET alone (RFC 9110, 14.2): HEAD tells of the whole file."""
    for asked in ("bytes=0-9", "bytes=999999-"):
        answer = client.head("/files/data.bin", headers={"Range": asked})
        assert (answer.status_code, answer.headers["Content-Length"]) == (200, str(len(DATA)))


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=1000-1999", 1000, 2000),
        ("bytes=255999-", 255999, 256000),
        ("bytes=-10", 255990, 256000),
        ("bytes=-999999", 0, 256000),
        ("bytes=10-999999999999", 10, 256000),
        ("BYTES=5-6", 5, 7),
    ],
)
def test_a_range_is_answered_with_a_part(client: httpx.Client, asked: str, start: int, end: int) -> None:
    """206 has the requested bytes, and says which they are; a range may cover the whole file."""
    answer = client.get("/files/data.bin", headers={"Range": asked})
    whole = end - start == len(DATA)
    assert (answer.status_code, answer.content) == (200 if whole else 206, DATA[start:end])
    assert answer.headers.get("Content-Range") == (None if whole else f"bytes {start}-{end - 1}/{len(DATA)}")


@pytest.mark.parametrize(
    "asked", ["bytes=9-1", "bytes=a-b", "lines=1-2", "bytes=0-1,5-6", "bytes=-", "5-6", "bytes= 1-2"]
)
def test_an_invalid_range_is_ignored(client: httpx.Client, asked: str) -> None:
    """Malformed ranges, several ranges and ranges in other units are answered with the whole file."""
    answer = client.get("/files/data.bin", headers={"Range": asked})
    assert (answer.status_code, len(answer.content)) == (200, len(DATA))


@pytest.mark.parametrize("asked", ["bytes=256000-", "bytes=999999-9999999", "bytes=-0"])
def test_a_range_beyond_the_end_is_416(client: httpx.Client, asked: str) -> None:
    """The answer says how long the file is."""
    answer = client.get("/files/data.bin", headers={"Range": asked})
    assert (answer.status_code, answer.headers["Content-Range"]) == (416, "bytes */256000")
    assert answer.json()["detail"]


BEFORE, AT, AFTER = (format_datetime(CHANGED + timedelta(seconds=each), usegmt=True) for each in (-1, 0, 1))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-None-Match": f'"{TAG}"'}, 304),
        ({"If-None-Match": f'"x", W/"{TAG}"'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"*"'}, 200),
        ({"If-None-Match": '"x"'}, 200),
        ({"If-None-Match": '"x"', "If-Modified-Since": AFTER}, 200),
        ({"If-Modified-Since": AT}, 304),
        ({"If-Modified-Since": BEFORE}, 200),
        ({"If-Modified-Since": "yesterday"}, 200),
        ({"If-Match": f'"{TAG}"'}, 200),
        ({"If-Match": f'W/"{TAG}"'}, 412),
        ({"If-Match": '"x"'}, 412),
        ({"If-Match": "*"}, 200),
        ({"If-Match": '"*"'}, 412),
        ({"If-Unmodified-Since": BEFORE}, 412),
        ({"If-Unmodified-Since": AT}, 200),
        ({"If-Unmodified-Since": BEFORE, "If-Match": f'"{TAG}"'}, 200),
        ({"Range": "bytes=0-9", "If-Range": f'"{TAG}"'}, 206),
        ({"Range": "bytes=0-9", "If-Range": f'W/"{TAG}"'}, 200),
        ({"Range": "bytes=0-9", "If-Range": '"x"'}, 200),
        ({"Range": "bytes=0-9", "If-Range": AT}, 206),
        ({"Range": "bytes=0-9", "If-Range": BEFORE}, 200),
        ({"Range": "bytes=0-9", "If-None-Match": f'"{TAG}"'}, 304),
    ],
)
def test_conditions_are_evaluated_in_order(client: httpx.Client, headers: dict[str, str], status: int) -> None:
    """They have the order of RFC 9110, malformed ones count as absent, and a 304 has nothing but its validators."""
    answer = client.get("/files/data.bin", headers=headers)
    assert answer.status_code == status
    if status == 304:
        assert (answer.content, answer.headers["ETag"]) == (b"", f'"{TAG}"')
        assert not answer.headers.keys() & {"content-type", "accept-ranges", "content-disposition"}


def test_any_seekable_object_is_a_file(client: httpx.Client, files: Files) -> None:
    """A file in memory has ranges, too, and is closed whether or not it is sent."""
    for headers, status in ({"Range": "bytes=2-4"}, 206), ({"If-None-Match": '"own"'}, 304), ({"If-Match": '"x"'}, 412):
        files.memory = io.BytesIO(b"0123456789")
        answer = client.get("/files", headers=headers)
        assert (answer.status_code, answer.headers.get("Content-Type", "").partition(";")[0]) in {
            (206, "text/x-test"),
            (304, ""),
            (412, "application/problem+json"),
        }
        assert answer.status_code == status
        assert status != 206 or answer.content == b"234"
        client.get("/nothing")
        assert files.memory.closed


@pytest.mark.parametrize(
    "name",
    [
        "no.bin",
        "x" * 300,
        "%C3%A9" * 200,
        ("y" * 15 + "%2F") * 440,
        "no.bin?at=nul%00",
        "data.bin%2Fx",
        "loop",
        "folder",
        "socket",
        "..",
    ],
)
def test_a_name_of_no_file_is_404(client: httpx.Client, files: Files, name: str) -> None:
    """This holds for any error of the file system: a long or impossible name, a loop of links, a folder, a socket."""
    assert client.get(f"/files/{name}").status_code == 404


def test_a_download_has_its_file_name(client: httpx.Client) -> None:
    """A name can't break out of the header field's quotes."""
    answer = client.get("/files/data.bin", params={"as": 'Ünï "quoted"\n.bin'})
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
    assert "\n" not in answer.headers["Content-Disposition"]
    assert client.get("/files/absent").status_code == 404

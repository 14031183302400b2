"""Large files up and down through a host with little memory; PLUGHOST_TEST_LARGE=1 uses 2 GiB instead of 256 MiB."""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

if TYPE_CHECKING:
    from tests.lanes import Lane

BLOCK: Final = bytes(range(256)) * 4096
BLOCKS: Final = 2048 if os.environ.get("PLUGHOST_TEST_LARGE") else 256
MOST_MEMORY: Final = 200 * 2**20


def parts() -> Iterator[bytes]:
    """Yield the file in parts."""
    for number in range(BLOCKS):
        yield number.to_bytes(8, "big") + BLOCK[8:]


@pytest.fixture(scope="module")
def digest() -> str:
    """Return the file's digest."""
    made = hashlib.sha256()
    for part in parts():
        made.update(part)
    return made.hexdigest()


@pytest.fixture
def served(lane: Lane, tmp_path: Path) -> Iterator[tuple[str, Any, int]]:
    """A host in its own process: its address, its TLS context, and the process's id."""
    command = [sys.executable, str(Path(__file__).with_name("large_files.py")), lane.engine, str(tmp_path)]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        plain, secure, certificate = host.stdout.readline().split()
        try:
            verify = ssl.create_default_context(cafile=certificate)
            yield (plain if lane.scheme == "http" else secure), verify, host.pid
        finally:
            host.stdin.close()
            host.wait(60)


def test_a_large_file_is_uploaded_and_downloaded(served: tuple[str, Any, int], lane: Lane, digest: str) -> None:
    """Nothing is lost, an interrupted download is resumed, and the host's memory stays below 200 MiB."""
    url, verify, process = served
    with httpx.Client(base_url=url, verify=verify, http1=not lane.http2, http2=lane.http2, timeout=300) as client:
        headers = {"Content-Type": "application/octet-stream", "Accept-Encoding": "identity"}
        assert client.put("/file", content=parts(), headers=headers).text == digest
        received, size = hashlib.sha256(), 0
        with client.stream("GET", "/file", headers=headers) as answer:
            for part in answer.iter_raw(65536):
                received.update(part)
                size += len(part)
                if size >= BLOCKS * len(BLOCK) // 2:
                    break
    with httpx.Client(base_url=url, verify=verify, http1=not lane.http2, http2=lane.http2, timeout=300) as client:
        resumed = headers | {"Range": f"bytes={size}-", "If-Range": answer.headers["ETag"]}
        with client.stream("GET", "/file", headers=resumed) as answer:
            assert answer.status_code == 206
            for part in answer.iter_raw(65536):
                received.update(part)
    assert received.hexdigest() == digest
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak is not None
    assert int(peak[1]) * 1024 < MOST_MEMORY

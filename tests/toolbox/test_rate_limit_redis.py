"""Rate limits that several hosts count together in Redis, and what happens without it."""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from structlog.testing import LogCapture
from tests.waiting import wait_until

from plughost._logging import silent_logger
from plughost._runtime.generation import GenerationRefused
from plughost._settings.errors import SettingsError
from plughost.ratelimits import RateLimits, RateLimitSettings, StorageUnavailable
from plughost.testing import running_host

from .conftest import NotesPlugin, PrivateRedis, notes_host

if TYPE_CHECKING:
    from plughost._api.declarations import Health
    from plughost.testing import RunningHost


def limits_in(redis: PrivateRedis, **settings: Any) -> RateLimits:
    """Return rate limits counted in a Redis."""
    return RateLimits(RateLimitSettings(storage=redis.url, **settings), silent_logger())


def health_of(limits: RateLimits) -> Health:
    """Return the result of the health check."""
    (check,) = limits.checks()
    return check.check()


def test_two_hosts_count_together_exactly(redis: PrivateRedis) -> None:
    """Of many concurrent requests to two hosts, exactly as many as the limit are accepted."""
    with ExitStack() as stack:
        clients = []
        for _ in range(2):
            host = stack.enter_context(notes_host(NotesPlugin("50/hour"), rate_limits={"storage": redis.url}))
            clients.append(stack.enter_context(host.client()))
        with ThreadPoolExecutor(8) as pool:
            responses = list(pool.map(lambda number: clients[number % 2].get("/notes"), range(120)))
    assert Counter(answer.status_code for answer in responses) == {200: 50, 429: 70}
    left = [int(answer.headers["RateLimit-Remaining"]) for answer in responses if answer.status_code == 200]
    assert sorted(left) == list(range(50))


def test_plugins_are_counted_separately_in_one_redis(redis: PrivateRedis) -> None:
    """Two plugins with one limit share a server, but no counts."""
    both = (NotesPlugin(), NotesPlugin(name="other"))
    with notes_host(*both, rate_limits={"storage": redis.url}) as host, host.client() as client:
        left = [client.get(path).headers["RateLimit-Remaining"] for path in ("/notes", "/other", "/notes")]
    assert left == ["2", "2", "1"]


def test_a_reload_closes_only_connections_that_it_replaces(redis: PrivateRedis) -> None:
    """Connections stay while the settings do; other settings make new ones, and the old ones are closed."""
    with notes_host(NotesPlugin(), rate_limits={"storage": redis.url}) as host, host.client() as client:
        client.get("/notes")
        before = redis.clients()
        host.host.reload()
        client.get("/notes")
        assert redis.clients() == before != set()
        file = host.host.settings.file
        assert file is not None
        file.write_text(file.read_text().replace("[rate_limits]", "[rate_limits]\ntimeout = 0.7"))
        assert host.host.reload().changed
        client.get("/notes")
        wait_until(lambda: not redis.clients() & before)


@pytest.mark.parametrize(("setting", "without"), [("allow", 200), ("refuse", 503)])
def test_a_redis_outage_under_load_causes_no_500(redis: PrivateRedis, setting: str, without: int) -> None:
    """Meanwhile requests are accepted or 503, as the settings say; afterwards they are counted again."""
    limits = {"storage": redis.url, "on_storage_failure": setting, "timeout": 0.2}
    with notes_host(NotesPlugin("1000000/hour"), rate_limits=limits) as host, load_on(host) as seen:
        wait_until(lambda: seen[200])
        redis.stop()
        seen.clear()
        wait_until(lambda: seen[without] > 20)
        redis.start()
        with host.client() as client:
            wait_until(lambda: client.get("/notes").headers.get("RateLimit-Remaining", "1000000") < "999999")
        wait_until(lambda: seen.next(50) == {200})
    assert 500 not in seen.ever


def test_a_refused_request_has_retry_after(redis: PrivateRedis) -> None:
    """Without Redis and with `refuse`, the answer is a 503 in the plugin's format."""
    redis.stop()
    limits = {"storage": redis.url, "on_storage_failure": "refuse"}
    with notes_host(NotesPlugin(), rate_limits=limits) as host, host.client() as client:
        answer = client.get("/notes")
    assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
    assert int(answer.headers["Retry-After"]) >= 1


def test_a_mandatory_counter_uses_memory_meanwhile(redis: PrivateRedis) -> None:
    """A counter that requests it continues in this process, whatever the settings say."""
    redis.stop()
    for setting in ("allow", "refuse"):
        guesses = limits_in(redis, on_storage_failure=setting).counter("auth/guesses", "2/hour", always=True)
        assert [guesses.hit("mallory").exceeded for _ in range(3)] == [False, False, True]


def test_the_loss_and_return_of_redis_are_logged_once(redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many attempts there are, the log has one warning, and one line when it is over."""
    monkeypatch.setattr("plughost.ratelimits._windows.RETRY_DELAY", 0.0)
    log = LogCapture()
    logger = structlog.wrap_logger(structlog.ReturnLogger(), processors=[log])
    limits = RateLimits(RateLimitSettings(storage=redis.url, timeout=0.2), logger)
    counter = limits.counter("test/log", "10000/hour")
    redis.stop()
    for _ in range(20):
        assert not counter.hit("a").exceeded
    redis.start()
    wait_until(lambda: counter.hit("a").used)
    assert [entry["log_level"] for entry in log.entries] == ["warning", "info"]
    limits.close()


def test_the_health_check_shows_an_outage(redis: PrivateRedis) -> None:
    """It is down without Redis; probes stay up if requests are accepted meanwhile."""
    limits = limits_in(redis)
    assert health_of(limits).up
    redis.stop()
    assert not health_of(limits).up
    assert limits.checks()[0].kinds == frozenset()
    assert limits_in(redis, on_storage_failure="refuse").checks()[0].kinds == {"ready"}
    assert RateLimits().checks() == ()
    limits.close()


def test_a_redis_that_never_answers_is_tried_rarely() -> None:
    """Not every request waits for a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        limits = RateLimits(RateLimitSettings(storage=url, on_storage_failure="refuse", timeout=0.05))
        counter = limits.counter("test/silent", "10/hour")
        for _ in range(500):
            with pytest.raises(StorageUnavailable):
                counter.hit("a")
        assert 1 <= len(list(waiting_on(silent))) < 50
        limits.close()


def test_after_an_outage_connections_are_new(redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover by name, the former server may still answer, as a replica: its connections are given up."""
    monkeypatch.setattr("plughost.ratelimits._windows.RETRY_DELAY", 0.0)
    counter = limits_in(redis, on_storage_failure="refuse").counter("test/failover", "10/hour")
    with pytest.importorskip("redis").Redis.from_url(redis.url) as operator:
        counter.hit("a")
        before = redis.clients()
        assert before
        operator.replicaof("127.0.0.1", 1)
        for _ in range(2):
            with pytest.raises(StorageUnavailable):
                counter.hit("a")
        wait_until(lambda: not redis.clients() & before)


def test_one_request_at_a_time_waits_for_a_redis_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long an attempt takes, as while no name server answers, no second request waits meanwhile."""
    monkeypatch.setattr("plughost.ratelimits._windows.RETRY_DELAY", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        limits = RateLimits(RateLimitSettings(storage=url, on_storage_failure="refuse", timeout=5))
        counter = limits.counter("test/slow", "10/hour")
        first = pool.submit(counter.hit, "a")
        silent.accept()[0].close()
        assert isinstance(first.exception(), StorageUnavailable)
        second = pool.submit(counter.hit, "a")
        with silent.accept()[0]:
            with pytest.raises(StorageUnavailable):
                counter.hit("a")
            silent.setblocking(False)
            assert list(waiting_on(silent)) == []
        assert isinstance(second.exception(), StorageUnavailable)
        limits.close()


def test_the_password_of_the_url_is_never_shown(redis: PrivateRedis) -> None:
    """Neither the settings nor the health have it."""
    settings = RateLimitSettings(storage=f"redis://:secret@127.0.0.1:{redis.port}/0")
    limits = RateLimits(settings)
    assert "secret" not in repr(settings) + str(health_of(limits).data)
    limits.close()


@pytest.mark.parametrize("url", ["redis", "memcached://localhost", "http://localhost"])
def test_an_unknown_storage_is_refused(url: str) -> None:
    """The message lists the known ones, and doesn't repeat the value."""
    with pytest.raises(SettingsError, match=r"rate_limits.storage: must be memory or a URL that starts with redis://"):
        with_storage(url)


@pytest.mark.parametrize("place", ["[secret@localhost", "[secret]@localhost", "secret@localhost:secret"])
def test_a_storage_with_a_malformed_url_is_refused(place: str) -> None:
    """The message says how to write it, and doesn't repeat the value."""
    with pytest.raises(SettingsError, match=r"rate_limits.storage: is malformed: write \[[^:]* the port as a number$"):
        with_storage(f"redis://:{place}/0")


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis URL needs the extra, and the error names it."""
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(GenerationRefused, match=r"plughost\[redis\]"):
        with_storage("redis://127.0.0.1/0")


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ("socket_timeout=soon", "socket_timeout"),
        ("ssl_ca_certs=/ca.pem", "ssl_ca_certs"),  # of rediss://
        ("ssl_ca_cert=/ca.pem", "ssl_ca_cert"),
        ("protocol=7", "protocol"),
    ],
)
def test_a_storage_whose_parameters_the_client_refuses_is_refused(parameters: str, why: str) -> None:
    """Otherwise each request would end with 500, or no host would ever count."""
    with pytest.raises(GenerationRefused, match=rf"rate_limits.storage: .*{why}"):
        with_storage(f"redis://127.0.0.1/0?{parameters}")


def test_a_storage_over_tls_with_an_unknown_mode_is_refused() -> None:
    """The client reports that only when it connects."""
    with pytest.raises(GenerationRefused, match=r"rate_limits.storage: .*CERT_OPTIONAL"):
        with_storage("rediss://127.0.0.1/0?ssl_cert_reqs=CERT_OPTIONAL")


def waiting_on(listening: socket.socket) -> Iterator[None]:
    """Accept the connections that wait at a socket."""
    while True:
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return
        yield


def with_storage(url: str) -> None:
    """Try to start a host with this storage."""
    with running_host(distributions=[], settings={"rate_limits": {"storage": url}}):
        pass


class Seen(Counter[int]):
    """How many answers of each status were seen.

    Attributes:
        ever: All statuses that were seen since the beginning.
    """

    def __init__(self) -> None:
        """Start without any."""
        super().__init__()
        self.ever: set[int] = set()

    def next(self, number: int) -> set[int]:
        """Return the statuses of the next answers."""
        self.clear()
        wait_until(lambda: sum(self.values()) >= number)
        return set(self)


@contextmanager
def load_on(host: RunningHost) -> Iterator[Seen]:
    """Send requests from four threads, each with its own client; an exception in one fails the test.

    Threads that share httpx's pool close one another's connections when these have been idle for 5 s.
    """
    seen, done = Seen(), threading.Event()

    def ask() -> None:
        with host.client() as client:
            while not done.is_set():
                status = client.get("/notes").status_code
                seen[status] += 1
                seen.ever.add(status)

    with ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(ask) for _ in range(4)]
        try:
            yield seen
        finally:
            done.set()
    for thread in threads:
        thread.result()


def test_growing_waits_are_counted_together(redis: PrivateRedis) -> None:
    """A hit beyond the limit on one host lengthens the wait on the other."""
    one, other = (limits_in(redis).counter("test/growing", "3/hour", longest=7200) for _ in range(2))
    assert [counter.hit("a").reset for counter in (one, other, one)] == [3600, 3600, 3600]
    assert [counter.hit("a").reset for counter in (other, one)] == [4200, 4800]
    assert 4790 <= other.look("a").reset <= 4800
    assert other.look("a").remaining == 0


def test_the_wait_that_redis_tells_is_rounded_up(redis: PrivateRedis) -> None:
    """A client that comes back after these seconds finds a new window, not the rest of the old one."""
    counter = limits_in(redis).counter("test/rounded", "3/hour")
    counter.hit("a")
    with pytest.importorskip("redis").Redis.from_url(redis.url, decode_responses=True) as operator:
        (key,) = operator.keys("*test/rounded*")
        operator.pexpire(key, 1_800_400)
    assert counter.look("a").reset == 1801
    assert counter.hit("a").reset == 1801


def test_a_command_that_redis_refuses_is_an_outage(redis: PrivateRedis) -> None:
    """Whichever command fails, the settings say what happens: it is never an error of the request."""
    counter = limits_in(redis, on_storage_failure="refuse").counter("test/growing", "3/hour", longest=7200)
    counter.hit("a")
    with pytest.importorskip("redis").Redis.from_url(redis.url) as operator:
        operator.execute_command("ACL", "SETUSER", "default", "-expire")
    with pytest.raises(StorageUnavailable):
        counter.hit("a")


@pytest.mark.parametrize(("setting", "full", "well"), [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")])
def test_a_redis_that_takes_no_writes_stays_away(
    redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch, setting: str, full: str, well: str
) -> None:
    """While Redis is full or may not write, its answers to reads end no outage, in health, log and counters."""
    monkeypatch.setattr("plughost.ratelimits._windows.RETRY_DELAY", 0.0)
    log = LogCapture()
    logger = structlog.wrap_logger(structlog.ReturnLogger(), processors=[log])
    limits = RateLimits(RateLimitSettings(storage=redis.url, on_storage_failure="refuse"), logger)
    counter = limits.counter("test/full", "10000/hour")
    with pytest.importorskip("redis").Redis.from_url(redis.url) as operator:
        operator.config_set(setting, full)
        for _ in range(3):
            assert not health_of(limits).up
            for use in (counter.hit, counter.look):
                with pytest.raises(StorageUnavailable):
                    use("a")
        operator.config_set(setting, well)
    assert health_of(limits).up
    assert [entry["log_level"] for entry in log.entries] == ["warning", "info"]
    limits.close()

"""Hosts that share a Redis count guesses of a password together (ASVS 2.2.1)."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import bcrypt
import httpx
from tests.toolbox import conftest as toolbox

from plughost.testing import RunningHost, running_host

if TYPE_CHECKING:
    from tests.toolbox.conftest import PrivateRedis

    from plughost._settings.models import EngineName

LOGIN: Final = "/mylibrary/setup/login"
ENGINES: Final[tuple[EngineName, ...]] = ("waitress", "granian")
ADDRESSES: Final = 10
USER: Final = ("user@example.org", "user")

redis = toolbox.redis  # the fixture


def _host(engine: EngineName, redis: PrivateRedis) -> Any:
    """Run a host on which only the account's own limit restricts an hour's guesses."""
    hashed = bcrypt.hashpw(USER[1].encode(), bcrypt.gensalt(4)).decode()
    users = [{"email": USER[0], "password_hash": hashed, "role": "user"}]
    settings = {
        "rate_limits": {"storage": redis.url},
        "sites": {"library": {"http_engine": engine}},
        "plugins": {
            "library-auth": {"users": users, "login_limit_account": "1000/hour", "login_limit_address": "20/hour"}
        },
    }
    return running_host(["library-auth"], settings=settings, strict=True)


def _client(host: RunningHost, address: str) -> httpx.Client:
    return host.client("library", transport=httpx.HTTPTransport(local_address=address))


def test_addresses_and_hosts_share_the_limit_of_guesses_and_the_owner_gets_in(redis: PrivateRedis) -> None:
    """Two hosts count an hour's guesses together; without Redis, each counts alone."""
    with ExitStack() as stack:
        hosts = [stack.enter_context(_host(engine, redis)) for engine in ENGINES]
        owners = [stack.enter_context(_client(host, "127.0.0.1")) for host in hosts]
        assert [owner.get(LOGIN, auth=USER).status_code for owner in owners] == [200, 200]
        strangers = [stack.enter_context(_client(host, f"127.0.3.{n + 1}")) for n in range(ADDRESSES) for host in hosts]
        tries = [each.get(LOGIN, auth=(USER[0], f"guess {n}")).status_code for n in range(6) for each in strangers]
        assert Counter(tries) == {401: 90, 429: 30}
        assert {each.get(LOGIN, auth=USER).status_code for each in strangers} == {429}
        assert [owner.get(LOGIN, auth=USER).status_code for owner in owners] == [200, 200]
        redis.stop()
        alone = [strangers[0].get(LOGIN, auth=("other@example.org", f"guess {n}")).status_code for n in range(25)]
        assert Counter(alone) == {401: 20, 429: 5}

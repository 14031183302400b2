"""The middleware that limits how often a client may send requests."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

import falcon

from plughost.http._request import address_of, principal_of
from plughost.ratelimits._windows import RETRY_DELAY, StorageUnavailable

if TYPE_CHECKING:
    from plughost._api.context import PluginContext
    from plughost.http._request import Request
    from plughost.ratelimits._counter import Usage


class RateLimit:
    """Answers 429 to a client that sends too many requests, and shows every client what is left (CONTRACT 7).

    The headers are `RateLimit` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-10, with each limit by
    its name, and the three of earlier drafts, for the limit that is reached first.

    A client is the principal of a request, else its address; behind a trusted proxy, the address that the proxy names.
    Every request below the plugin's prefixes counts, including those that end in an error.
    """

    def __init__(self, context: PluginContext[Any], limit: str, name: str = "requests") -> None:
        """Make a component for a `Middleware`.

        Args:
            context: The plugin's context.
            limit: What is allowed, such as `100/minute`.
            name: Its name among the plugin's counters, also for clients: letters, digits, hyphens.
        """
        self._counter = context.counter(limit, name)
        self._policy = f'"{name}";q={self._counter.amount};w={self._counter.seconds}'
        self._remaining_prefix = f'"{name}";r='
        self._authenticator = context.authenticator
        self._key = f"rate_limit:{context.plugin}:{name}"

    def process_resource(self, req: Request, resp: falcon.Response, resource: object, params: dict[str, Any]) -> None:
        """Count the request.

        Raises:
            falcon.HTTPTooManyRequests: The client has exceeded the limit.
            falcon.HTTPServiceUnavailable: Redis is unavailable, and the settings say to refuse then.
        """
        try:
            usage = self._count(req)
        except StorageUnavailable:
            raise falcon.HTTPServiceUnavailable(
                description="Requests can't be counted at the moment. Try again in a few seconds.",
                retry_after=int(RETRY_DELAY) + 1,
            ) from None
        if usage.exceeded:
            raise falcon.HTTPTooManyRequests(
                description=f"This resource takes {self._counter.limit} of a client; try again in {usage.reset} s.",
                retry_after=usage.reset,
            )

    def process_response(self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool) -> None:
        """Tell the client how much is left, and count requests that were refused earlier (406, 413 ...)."""
        usage: Usage | None = req.context.get(self._key)
        if usage is None:
            try:
                usage = self._count(req)
            except StorageUnavailable:
                return
        resp.append_header("RateLimit-Policy", self._policy)
        resp.append_header("RateLimit", f"{self._remaining_prefix}{usage.remaining};t={usage.reset}")
        shown = resp.get_header("RateLimit-Remaining")
        if shown is None or int(shown) > usage.remaining:  # of several limits, the one that is reached first
            resp.set_header("RateLimit-Limit", str(usage.limit))
            resp.set_header("RateLimit-Remaining", str(usage.remaining))
            resp.set_header("RateLimit-Reset", str(usage.reset))

    def _count(self, req: Request) -> Usage:
        try:
            principal = principal_of(req, self._authenticator)
        except falcon.HTTPError:
            principal = None  # token guesses count by address; the resource refuses them
        client = f"user:{principal.name}" if principal else f"address:{network_of(req.remote_addr)}"
        usage = self._counter.hit(client)
        req.context[self._key] = usage
        return usage


def network_of(address: str) -> str:
    """Return an IPv4 address unchanged, and the /64 network of an IPv6 one, since one customer has all of it.

    A text that is no address, as on a Unix socket, is returned unchanged.
    """
    ip = address_of(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return address if ip is None else str(ip)

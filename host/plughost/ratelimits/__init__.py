"""Rate limits: how often clients may send requests, counted in memory or, for several hosts together, in Redis.

To limit its requests, a plugin declares a middleware. It sets the headers and sends 429 in the plugin's error format:

    Middleware(name="notes-rate-limit", component=RateLimit(context, context.settings.rate_limit))

with `rate_limit: Limit = "100/minute"` in its settings. To count something else, such as failed logins, use a counter:
`context.counter("5/minute", "failed-logins")`, then `counter.hit(key)` and `counter.look(key)`.

The operator chooses one storage for all counts of the host, in `[rate_limits]`.
"""

from __future__ import annotations

from plughost._settings.models import RateLimitSettings
from plughost.ratelimits._counter import Counter, Limit, RateLimits, Usage
from plughost.ratelimits._middleware import RateLimit, network_of
from plughost.ratelimits._windows import StorageUnavailable

__all__ = [
    "Counter",
    "Limit",
    "RateLimit",
    "RateLimitSettings",
    "RateLimits",
    "StorageUnavailable",
    "Usage",
    "network_of",
]

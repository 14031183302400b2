"""Rate limits: who may ask how often, counted in memory or, for several hosts together, in Redis.

A plugin that limits its requests declares a middleware, and has headers and 429 in its own error format:

    Middleware(name="notes-rate-limit", component=RateLimit(context, context.settings.rate_limit))

with `rate_limit: Limit = "100/minute"` in its settings. One that counts something else, such as failed logins, takes a
counter: `context.counter("5/minute", "failed-logins")`, then `counter.hit(key)` and `counter.look(key)`.

The operator decides once for the host, in `[rate_limits]`, where all of that is counted.
"""

from __future__ import annotations

from plughost._settings.models import RateLimitSettings
from plughost.ratelimits._counter import Counter, Limit, RateLimits, Usage
from plughost.ratelimits._middleware import RateLimit, network_of
from plughost.ratelimits._shared import StorageUnavailable

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

"""Keys of a request's environ by which the host's parts tell one another of it. Plugins use `Request` instead."""

from __future__ import annotations

from typing import Final

SITE: Final = "plughost.site"
"""The site that received it."""

MOUNTED: Final = "plughost.mounted"
"""The route or group of its path, once it is routed to one."""

REFUSED: Final = "plughost.refused"
"""It reaches no resource, since the host has too much to do, or since it has failed already.

Value: its route group as mounted, or None.
"""

FAILED: Final = "plughost.failed"
"""It failed outside Falcon's error handlers, and is answered again. Value: the error."""

UNCHECKED: Final = "plughost.unchecked_host"
"""Its site has no `allowed_hosts`: its Host may be forged."""

TRUSTED: Final = "plughost.trusted_proxy"
"""It is from a trusted proxy, whose Host is the one that the proxy passes on."""

CUT_OFF: Final = "plughost.cut_off"
"""Whether it is given up: its body then breaks off."""

FORWARDED: Final = "plughost.forwarded"
"""A proxy has announced itself, trusted or not."""

ON_FAILURE: Final = "plughost.on_failure"
"""What to call if it fails before its response is complete."""

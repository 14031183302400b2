"""The test kit: a real host for a plugin's tests, which sees the given plugins and no others.

```python
from plughost.testing import running_host

def test_it_says_hello():
    with running_host(plugins=["hello"]) as host, host.client() as client:
        assert client.get("/hello").json() == {"hello": "world"}
```
"""

from __future__ import annotations

from plughost.testing._conformance import conformance
from plughost.testing._databases import fresh_postgresql, open_store, store_settings
from plughost.testing._distributions import Tokens, plugin_distribution
from plughost.testing._hosts import RunningHost, plugin_context, running_host
from plughost.testing._queries import query_faults

__all__ = [
    "RunningHost",
    "Tokens",
    "conformance",
    "fresh_postgresql",
    "open_store",
    "plugin_context",
    "plugin_distribution",
    "query_faults",
    "running_host",
    "store_settings",
]

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
from plughost.testing._contexts import plugin_context
from plughost.testing._databases import fresh_postgresql, store_settings
from plughost.testing._distributions import plugin_distribution
from plughost.testing._hosts import RunningHost, running_host
from plughost.testing._queries import query_faults
from plughost.testing._tokens import Tokens

__all__ = [
    "RunningHost",
    "Tokens",
    "conformance",
    "fresh_postgresql",
    "plugin_context",
    "plugin_distribution",
    "query_faults",
    "running_host",
    "store_settings",
]

"""The test kit: a real host for a plugin's tests, which sees the plugins it is told to and no others.

```python
from plughost.testing import running_host

def test_it_says_hello():
    with running_host(plugins=["hello"]) as host, host.client() as client:
        assert client.get("/hello").json() == {"hello": "world"}
```
"""

from __future__ import annotations

from plughost.testing.contexts import plugin_context
from plughost.testing.databases import fresh_postgresql, store_settings
from plughost.testing.distributions import plugin_distribution
from plughost.testing.hosts import RunningHost, running_host

__all__ = ["RunningHost", "fresh_postgresql", "plugin_context", "plugin_distribution", "running_host", "store_settings"]

"""The test kit says why a plugin under test does not serve."""

from __future__ import annotations

import pytest
from tests.host.plugins import Plugin

from plughost.testing import plugin_distribution, running_host


def test_a_client_of_a_plugin_that_failed_names_the_reason() -> None:
    """An author's first mistake is in a hook, and the first line of a test that notices it asks for a client."""
    broken = plugin_distribution("broken", Plugin(register_routes=lambda context: None))
    with running_host(distributions=[broken]) as host:
        with pytest.raises(KeyError, match="main over http; broken is failed: register_routes: it returned None"):
            host.client()
        with pytest.raises(KeyError, match="no active plugin has a store notes; broken is failed"):
            host.store("notes")

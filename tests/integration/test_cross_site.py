"""Web pages of other sites write nothing, whichever plugin is asked (CONTRACT 2)."""

from __future__ import annotations

import re

from plughost.testing import running_host


def test_every_write_of_every_plugin_refuses_other_sites() -> None:
    """Each declared method that isn't safe is 403 for a page of another site, on each site."""
    refused = set()
    with running_host(strict=True) as host:
        for site, mounted in host.host.view.sites.items():
            writes = [
                (re.sub(r"\{[^}]*\}", "1", group.prefix + route.path), method)
                for _, group in mounted.groups
                for route in group.routes
                for method in route.operations
                if method not in ("GET", "HEAD", "OPTIONS")
            ]
            with host.client(site) as client:
                for path, method in writes:
                    for sent in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
                        answer = client.request(method, path, headers=sent, content=b"{}")
                        assert answer.status_code == 403, (method, path, sent, answer.text)
                        refused.add((method, path))
    assert len(refused) >= 15

"""The name that a request calls the host by."""

from __future__ import annotations

import pytest
from falcon.testing import create_req

from plughost_openapi.addresses import host_name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("example.org", "example.org"),
        ("example.org:8080", "example.org"),
        ("[::1]:8080", "[::1]"),
        ("a b", "localhost"),
        ("a;script-src *", "localhost"),
        ('a"', "localhost"),
    ],
)
def test_nothing_but_a_name_gets_into_addresses_and_policies(given: str, name: str) -> None:
    """What a client sends as Host ends up in the page's policy, so it is a name or an address, or ignored."""
    assert host_name(create_req(headers={"Host": given})) == name

"""The host name that a request uses."""

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
def test_only_a_valid_host_gets_into_addresses_and_policies(given: str, name: str) -> None:
    """The page's policy contains the Host header, so anything except a name or an address is ignored."""
    assert host_name(create_req(headers={"Host": given})) == name

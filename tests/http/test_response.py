"""Header fields that the host adds to every response."""

from __future__ import annotations

from plughost.http._response import Response


def test_the_hosts_vary_is_added_to_the_resources() -> None:
    """Other fields replace those that the resource set."""
    resp = Response()
    resp.vary = ["Accept-Language"]
    resp.set_header("X-Request-ID", "mine")
    resp.add_common({"vary": "API-Version", "api-version": "1.0"}, "theirs")
    assert resp.headers == {
        "vary": "Accept-Language, API-Version",
        "api-version": "1.0",
        "x-request-id": "theirs",
    }


def test_vary_names_each_field_once() -> None:
    """A field that the resource names in its own Vary, in any case, is not added again."""
    resp = Response()
    resp.set_header("Vary", "api-version,Accept")
    resp.add_common({"vary": "API-Version, Origin"}, "theirs")
    assert resp.get_header("Vary") == "api-version, Accept, Origin"


def test_fields_without_vary_leave_it_alone() -> None:
    """A response of a route without minor versions keeps the Vary of its resource."""
    resp = Response()
    resp.vary = ["Accept-Language"]
    resp.add_common({}, "theirs")
    assert resp.get_header("Vary") == "Accept-Language"

"""The plugin on a real host, over real HTTP."""

from collections.abc import Iterator

import httpx
import pytest

from plughost.testing import running_host


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of a host that serves this plugin and no other."""
    settings = {"plugins": {"greeting": {"word": "Welcome"}}}
    with running_host(plugins=["greeting"], settings=settings) as host, host.client() as client:
        yield client


def test_it_greets_whom_the_path_names(client: httpx.Client) -> None:
    """The name in the path is greeted with the configured word; `%2F` in it is data."""
    assert client.get("/greetings/Ada").json() == {"text": "Welcome, Ada!"}
    assert client.get("/greetings/R%2FD").json() == {"text": "Welcome, R/D!"}


def test_it_greets_whom_the_body_names(client: httpx.Client) -> None:
    """The name in the body is greeted just as well."""
    assert client.post("/greetings", json={"name": "Grace"}).json() == {"text": "Welcome, Grace!"}


def test_a_person_without_a_name_is_refused(client: httpx.Client) -> None:
    """A missing name is answered with 400 and the host's problem details."""
    answer = client.post("/greetings", json={})
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["violations"] == [{"field": "name", "message": "must not be blank"}]

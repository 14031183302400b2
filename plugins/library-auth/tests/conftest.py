"""The service as its site mounts it, without a network, and a client that sends credentials to it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from falcon import testing
from structlog.testing import capture_logs

from plughost import PluginContext
from plughost._apps.application import build_app
from plughost._apps.mounting import mount
from plughost.testing import open_store, plugin_context
from plughost_library_auth import plugin
from plughost_library_auth.records import STORE
from plughost_library_auth.settings import Settings

if TYPE_CHECKING:
    from plughost.stores import OpenStore

Context = PluginContext[Settings]


class Client:
    """Sends requests to the service.

    Attributes:
        context: The plugin's context.
    """

    def __init__(self, context: Context) -> None:
        """Mount the service as the host does."""
        groups = [
            mount(
                "library-auth",
                group,
                1024,
                plugin.register_middleware(context),
                authenticator=plugin.register_authenticator(context),
            )
            for group in plugin.register_routes(context)
        ]
        self.context = context
        self._client = testing.TestClient(build_app(groups, [], context.logger))

    def get(self, path: str, *, secure_port: int | None = 4443, tls: bool = True, **options: Any) -> testing.Result:
        """Send a GET to a site whose HTTPS listener has this port."""
        options.setdefault("host", "localhost")
        return self._client.simulate_get(
            f"/mylibrary{path}",
            protocol="https" if tls else "http",
            port=(secure_port or 4443) if tls else 9998,
            extras={"plughost.site": SimpleNamespace(secure_port=secure_port), **options.pop("extras", {})},
            **options,
        )

    def login(self, email: str, password: str, **options: Any) -> testing.Result:
        """Send credentials."""
        return self.get("/setup/login", headers={"Authorization": basic(f"{email}:{password}".encode())}, **options)

    def token(self, name: str = "user") -> str:
        """Log in a demo user, and return the token."""
        return self.login(f"{name}@example.org", name).text

    def with_token(self, path: str, token: str, **options: Any) -> testing.Result:
        """Send a bearer token."""
        return self.get(path, headers={"Authorization": f"Bearer {token}"}, **options)


def basic(credentials: bytes) -> str:
    """Return the header of HTTP Basic credentials."""
    return f"Basic {base64.b64encode(credentials).decode()}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[OpenStore[Any]]:
    """The plugin's store on SQLite; all contexts of a test share it."""
    with open_store(STORE, tmp_path / "stores") as store:
        yield store


@pytest.fixture
def make_context(tmp_path: Path, store: OpenStore[Any]) -> Iterator[Callable[..., Context]]:
    """Return a function that makes a context, by default with EdDSA, whose keys are created fastest."""
    made: list[Context] = []

    def make(*, dev: bool = True, **settings: Any) -> Context:
        given = Settings.model_validate({"algorithm": "EdDSA", **settings})
        made.append(plugin_context("library-auth", given, tmp_path, dev=dev, stores={STORE.name: store}))
        return made[-1]

    yield make
    for context in made:
        plugin.stopping(context)


@pytest.fixture
def make_client(make_context: Callable[..., Context]) -> Callable[..., Client]:
    """Return a function that mounts the service with given settings."""
    return lambda **settings: Client(make_context(**settings))


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    """The service with `--dev` and no settings."""
    return make_client()


@pytest.fixture
def logs() -> Any:
    """The log entries of the test."""
    with capture_logs() as entries:
        yield entries

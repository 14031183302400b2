"""A client that a generator creates from the description, used unchanged."""

from __future__ import annotations

import base64
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from plughost.testing import RunningHost

Generated = Callable[[str], Any]


@pytest.fixture(scope="module")
def generated(host: RunningHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    """Import a module of the clients, packages `generated_main` and `generated_library`."""
    folder = tmp_path_factory.mktemp("clients")
    (folder / "config.yml").write_text("post_hooks: []\n")
    for site in ("main", "library"):
        command: list[str | Path] = [
            Path(sys.executable).with_name("openapi-python-client"),
            *("generate", "--url", f"{host.url()}/q/openapi?format=json&site={site}"),
            *("--output-path", folder / f"generated_{site}", "--meta", "none"),
            *("--config", folder / "config.yml", "--fail-on-warning"),
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.startswith("generated_")]:
            del sys.modules[name]


def test_it_logs_in(host: RunningHost, generated: Generated) -> None:
    """Credentials become a token that opens a protected resource."""
    library, api = generated("generated_library"), "generated_library.api.library_auth"
    credentials = base64.b64encode(b"admin@example.org:admin").decode()
    with library.AuthenticatedClient(host.url("library"), token=credentials, prefix="Basic") as client:
        token = generated(f"{api}.login").sync(client=client)
    with library.AuthenticatedClient(host.url("library"), token=token) as client:
        identity = generated(f"{api}.get_admin_identity").sync(client=client)
    assert (identity.email, identity.roles) == ("admin@example.org", ["admin"])


@pytest.mark.parametrize(
    ("version", "draft"), [("v2", "ProductDraft"), ("v3", "ProductDraft"), ("v4", "CreateProductRequest")]
)
def test_it_creates_reads_and_deletes_products(
    host: RunningHost, generated: Generated, version: str, draft: str
) -> None:
    """A product is created, read by its SKU, listed and deleted."""
    api = f"generated_main.api.catalog_{version}"
    product = getattr(generated("generated_main.models"), draft)(sku=f"a/b {version}", name="é", price=19.99, stock=3)
    with generated("generated_main").Client(host.url()) as client:
        created = generated(f"{api}.create_product_{version}").sync(client=client, body=product)
        read = generated(f"{api}.get_product_{version}").sync(product.sku, client=client)
        listed = generated(f"{api}.list_products_{version}").sync(client=client)
        gone = generated(f"{api}.delete_product_{version}").sync_detailed(product.sku, client=client)
    assert created == read
    assert (read.sku, read.price, read.stock) == (product.sku, 19.99, 3)
    assert read in listed
    assert gone.status_code == 204


def test_it_creates_reads_and_deletes_messages(host: RunningHost, generated: Generated) -> None:
    """A message is created, read by its id and deleted, and then is not found."""
    api = "generated_main.api.messages"
    draft = generated("generated_main.models").MessageDraft(content="Hello, wörld")
    with generated("generated_main").Client(host.url()) as client:
        created = generated(f"{api}.create_message").sync(client=client, body=draft)
        read = generated(f"{api}.get_message").sync(created.id, client=client)
        delete = generated(f"{api}.delete_message").sync_detailed
        statuses = [delete(created.id, client=client).status_code for _ in range(2)]
    assert (read.content, statuses) == ("Hello, wörld", [204, 404])


def test_it_reads_errors(host: RunningHost, generated: Generated) -> None:
    """An error is a value with the members of the description."""
    models = generated("generated_main.models")
    with generated("generated_main").Client(host.url()) as client:
        problem = generated("generated_main.api.messages.create_message").sync(
            client=client, body=models.MessageDraft(content="x" * 501)
        )
    assert isinstance(problem, models.ProblemDetails)
    assert problem.violations[0].field == "content"

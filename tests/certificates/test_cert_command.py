"""`plughost cert create|show|export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from plughost._cli import main
from plughost._tls.certificates import ensure_self_signed
from plughost._tls.keypairs import PreparedTLS


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Return a data folder that doesn't exist yet."""
    return tmp_path / "data"


def run(data_dir: Path, *arguments: str, **variables: str) -> Result:
    """Run `plughost cert` with the settings of the environment given."""
    return CliRunner(env={"PLUGHOST_DATA_DIR": str(data_dir), **variables}).invoke(main, ["cert", *arguments])


def test_create_shows_place_and_names(data_dir: Path) -> None:
    """`create` shows where the certificate is and which names it has; a second time, that it exists."""
    first = run(data_dir, "create", "--name", "dev.test")
    assert first.exit_code == 0
    assert f"Created {data_dir / 'tls' / 'certificate.pem'}" in first.output
    assert "localhost, 127.0.0.1, ::1, dev.test" in first.output
    assert "names = [...]" in first.output
    assert "Already exists" in run(data_dir, "create", "--name", "dev.test").output
    assert "Created" in run(data_dir, "create", "--name", "dev.test", "--force").output


def test_create_takes_the_names_of_the_settings(data_dir: Path) -> None:
    """The certificate that `create` makes is the one that the next start of the host uses."""
    run(data_dir, "create", PLUGHOST_TLS__NAMES='["set.test"]')
    assert not ensure_self_signed(data_dir / "tls", ["set.test"]).made


def test_config_option_chooses_the_settings(data_dir: Path, tmp_path: Path) -> None:
    """`--config` names the settings file, as for every command."""
    (tmp_path / "other.toml").write_text('[tls]\nnames = ["file.test"]\n')
    assert "file.test" in run(data_dir, "create", "--config", str(tmp_path / "other.toml")).output


def test_show_as_json_and_as_table(data_dir: Path) -> None:
    """`show` gives people and programs the same facts."""
    run(data_dir, "create")
    shown: dict[str, Any] = json.loads(run(data_dir, "show", "--json").output)
    assert shown["names"] == ["localhost", "127.0.0.1", "::1"]
    assert shown["self_signed"] is True
    assert shown["days_left"] == 396
    table = run(data_dir, "show").output
    assert shown["key_type"] in table
    assert "396 days left" in table


@pytest.mark.parametrize("arguments", [["export"], ["export", "-"]])
def test_export_writes_only_the_certificate(data_dir: Path, arguments: list[str]) -> None:
    """`export` writes the PEM certificate and nothing else to standard output."""
    run(data_dir, "create")
    assert run(data_dir, *arguments).stdout == (data_dir / "tls" / "certificate.pem").read_text()


def test_clients_verify_with_the_exported_file(data_dir: Path, tmp_path: Path, handshake: Any) -> None:
    """A client that trusts the exported file verifies the server."""
    run(data_dir, "create")
    exported = tmp_path / "plughost.pem"
    assert run(data_dir, "export", str(exported)).exit_code == 0
    files = PreparedTLS(certificate=data_dir / "tls" / "certificate.pem", key=data_dir / "tls" / "key.pem")
    assert handshake(files, "localhost", exported)


def test_show_opens_a_key_store_with_its_password(data_dir: Path, tmp_path: Path, authority: Any) -> None:
    """The password is that of the settings, as for the listeners; a wrong one is an error."""
    issued, store = authority.issue(), tmp_path / "server.p12"
    encryption = BestAvailableEncryption(b"open sesame")
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"x", issued.key, issued.certificate, None, encryption))
    variables = {"PLUGHOST_TLS__PKCS12": str(store), "PLUGHOST_TLS__PASSWORD": "open sesame"}
    shown = json.loads(run(data_dir, "show", "--json", **variables).output)
    assert (shown["names"], shown["path"]) == (["service.test"], str(store))
    refused = run(data_dir, "show", **{**variables, "PLUGHOST_TLS__PASSWORD": "close sesame"})
    assert (refused.exit_code, "password" in refused.output) == (1, True)


def test_export_never_writes_a_key(data_dir: Path, tmp_path: Path, authority: Any) -> None:
    """From an operator's file with certificate and key, only the certificate is exported."""
    issued = authority.issue()
    (tmp_path / "both.pem").write_bytes(issued.key_pem() + issued.pem)
    result = run(data_dir, "export", PLUGHOST_TLS__CERTIFICATE=str(tmp_path / "both.pem"))
    assert result.stdout == issued.pem.decode()


@pytest.mark.parametrize(
    ("arguments", "variables", "reason"),
    [
        (["show"], {}, "`plughost cert create` makes one"),
        (["export"], {}, "`plughost cert create` makes one"),
        (["create", "--name", "https://x"], {}, "no host name or IP address"),
        (["show"], {"PLUGHOST_TLS__CERTIFICATE": "/nowhere/a.pem"}, "/nowhere/a.pem: there is no such file"),
    ],
    ids=["show", "export", "name", "settings"],
)
def test_errors_are_one_message(data_dir: Path, arguments: list[str], variables: dict[str, str], reason: str) -> None:
    """A mistake that the operator can correct is one message and exit code 1, without a traceback."""
    result = run(data_dir, *arguments, **variables)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.output.startswith("Error: ")
    assert reason in result.output
    assert len(result.output.splitlines()) == 1


def test_export_to_a_missing_folder_is_an_error(data_dir: Path, tmp_path: Path) -> None:
    """The message names the file that can't be written."""
    run(data_dir, "create")
    result = run(data_dir, "export", str(tmp_path / "missing" / "a.pem"))
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path / 'missing' / 'a.pem'}: No such file or directory\n"

"""`plughost openapi`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from openapi_spec_validator import validate

from plughost._cli import main
from plughost_openapi.settings import Settings


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_writes_to_standard_output() -> None:
    """Without a file name, the output is only the description as YAML."""
    result = CliRunner().invoke(main, ["openapi", "--dev"])
    assert (result.exit_code, result.stderr) == (0, "")
    description = yaml.safe_load(result.stdout)
    validate(description)
    assert description["servers"] == [{"url": "http://127.0.0.1:8080"}, {"url": "https://127.0.0.1:8443"}]


def test_a_files_name_chooses_the_format() -> None:
    """A name that ends with .json is JSON, and the settings are those of `--config`."""
    listening = 'address = "0.0.0.0"\nlisteners = ["http"]\nhttp_port = 81\n'
    Path("other.toml").write_text(f"[sites.main]\n{listening}[plugins.openapi]\nenabled = true\n")
    result = CliRunner().invoke(main, ["openapi", "--config", "other.toml", "--dev", "api.json"])
    assert (result.exit_code, result.output) == (0, "")
    assert json.loads(Path("api.json").read_text())["servers"] == [{"url": "http://localhost:81"}]


def test_an_unknown_site_writes_nothing() -> None:
    """The error lists the existing sites, and the file stays as it was."""
    Path("api.yaml").write_text("mine")
    result = CliRunner().invoke(main, ["openapi", "--dev", "--site", "nowhere", "api.yaml"])
    assert result.exit_code == 1
    assert "there are: " in result.stderr
    assert Path("api.yaml").read_text() == "mine"


def test_a_full_disk_is_reported_with_the_file() -> None:
    """The error has the file and the reason, in one line."""
    result = CliRunner().invoke(main, ["openapi", "--dev", "/dev/full"])
    assert (result.exit_code, result.stderr) == (1, "Error: /dev/full can't be written: No space left on device\n")


def test_a_page_without_a_description_is_refused() -> None:
    """Contradictory settings are reported, and servers that no client could reach."""
    with pytest.raises(ValueError, match="needs the description"):
        Settings(enabled=False, swagger_ui=True)
    for server in ("no address", "http://[::1", "http://example.org:99999"):
        with pytest.raises(ValueError, match="must be an http:// or https:// URL without query"):
            Settings(servers={"main": (server,)})

"""`plughost doctor`: what it finds, and what it advises."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.certificates.conftest import Authority
from tests.cli.conftest import install_store_plugin

from plughost._tls.certificates import ensure_self_signed
from plughost.testing import store_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Line, Serving

    Serve = Callable[..., Serving]

SECRETS_PLUGIN = """
from pydantic import BaseModel, SecretStr
from plughost import hookimpl


class User(BaseModel):
    token: SecretStr


class Settings(BaseModel):
    users: tuple[User, ...] = ()


@hookimpl
def register_settings():
    return Settings
"""


def test_a_healthy_host_has_no_problem(line: Line) -> None:
    """With no certificate yet and nothing unusual, the doctor finds no problem and exits with 0."""
    line.install("good")
    examined = line.run("doctor", "--dev", "--json")
    found = json.loads(examined.output)
    assert examined.exit_code == 0
    assert {each["about"] for each in found} >= {"open files", "clock", "certificate", "disk", "versions", "proxies"}
    assert not [each for each in found if each["verdict"] == "problem"]


@pytest.mark.parametrize(
    ("settings", "about"),
    [
        ("", "certificate"),
        ("trusted_proxies = ['0.0.0.0/0']", "proxies"),
        ("rate_limits = {storage = 'redis://127.0.0.1:1'}", "redis"),
        ("data_dir = 'plughost.toml'", "data folder"),
    ],
)
def test_the_doctor_names_a_problem_and_its_solution(line: Line, settings: str, about: str) -> None:
    """The exit code is 1, and the problem says what to do."""
    line.install("good")
    line.configure(settings)
    examined = line.run("doctor", "--json")
    (found,) = [each for each in json.loads(examined.output) if each["verdict"] == "problem" and each["about"] == about]
    assert (examined.exit_code, bool(found["todo"])) == (1, True)


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [("", "advice"), ("trusted_proxies = ['10.0.0.1']", "good")],
)
def test_the_doctor_assumes_that_a_trusted_proxy_ends_tls(line: Line, settings: str, verdict: str) -> None:
    """Without a trusted proxy, a host without HTTPS is advised to have some."""
    line.install("good")
    line.configure("")
    path = line.folder / "plughost.toml"
    path.write_text(f"{settings}\n{path.read_text()}".replace("https_port = 0", 'listeners = ["http"]'))
    found = {each["about"]: each["verdict"] for each in json.loads(line.run("doctor", "--json").output)}
    assert (found["certificate"], found["proxies"]) == (verdict, "good")


def test_the_doctor_rejects_a_certificate_that_no_start_uses(line: Line) -> None:
    """`plughost cert create` makes one; without --dev it is used only if the settings say so."""
    line.install("good")
    assert line.run("cert", "create").exit_code == 0
    assert line.run("check").exit_code == 1
    found = {each["about"]: each for each in json.loads(line.run("doctor", "--json").output)}
    assert found["certificate"]["verdict"] == "problem"
    assert "self_signed = true" in found["certificate"]["todo"]


@pytest.mark.parametrize(
    ("made", "verdict", "found"),
    [(-400, "problem", "expired"), (-380, "advice", "16 days left"), (400, "problem", "not valid before")],
)
def test_the_doctor_says_when_to_renew_the_generated_certificate(
    line: Line, made: int, verdict: str, found: str
) -> None:
    """A running host keeps one that has expired, or that it made while its clock was ahead; a reload renews it."""
    line.install("good")
    ensure_self_signed(line.folder / "plughost-data" / "tls", (), now=datetime.now(UTC) + timedelta(days=made))
    examined = {each["about"]: each for each in json.loads(line.run("doctor", "--dev", "--json").output)}
    certificate = examined["certificate"]
    assert (certificate["verdict"], found in certificate["found"]) == (verdict, True)
    assert "plughost reload" in certificate["todo"]


def test_the_doctor_asks_for_a_backup_after_one_from_the_future(line: Line) -> None:
    """The clock was years ahead when it was made, which says nothing of its age."""
    install_store_plugin(line, "shelves")
    (line.folder / "plughost-data").mkdir()
    (line.folder / "plughost-data" / "backups.json").write_text('{"shelves": "2099-12-31T00:00:00+00:00"}')
    examined = {each["about"]: each for each in json.loads(line.run("doctor", "--dev", "--json").output)}
    assert (examined["backups"]["verdict"], "of 2099-12-31" in examined["backups"]["found"]) == ("advice", True)


def test_the_doctor_examines_a_host_in_development_mode_as_such(line: Line, serving: Serve) -> None:
    """It needs no `--dev` to see that the running host made its own certificate."""
    line.install("good")
    serving()
    examined = line.run("doctor", "--json")
    found = {each["about"]: each for each in json.loads(examined.output)}
    assert (examined.exit_code, found["certificate"]["verdict"]) == (0, "good")
    assert "development mode" in found["running host"]["found"]


def test_the_doctor_reports_what_troubles_the_running_host(line: Line, serving: Serve) -> None:
    """It can't be seen from outside, such as a hook that failed, or a store whose file was deleted."""
    line.install("good")
    line.install("hurt", "from plughost import hookimpl\n\n\n@hookimpl\ndef started(context):\n    raise OSError\n")
    serving()
    examined = line.run("doctor", "--json")
    (found,) = [each for each in json.loads(examined.output) if each["verdict"] == "problem"]
    assert (examined.exit_code, found["about"]) == (1, "running host")
    assert found["found"].startswith("hurt: ")
    assert "OSError" in found["found"]


def test_the_doctor_reports_a_settings_file_that_everybody_can_change(line: Line) -> None:
    """Whoever can write the settings controls the host."""
    file = line.folder / "plughost.toml"
    file.chmod(0o666)
    found = json.loads(line.run("doctor", "--dev", "--json").output)
    assert [each["todo"] for each in found if each["about"] == "permissions"] == [f"chmod o-w {file}"]


def test_check_and_doctor_advise_to_renew_a_certificate(line: Line) -> None:
    """An operator's certificate that ends within 30 days still works, and both commands say what to do."""
    line.install("good")
    authority = Authority()
    issued = authority.issue(end=20)
    (line.folder / "own.pem").write_bytes(issued.pem + authority.intermediate.pem + issued.key_pem())
    line.configure("[tls]\ncertificate = 'own.pem'")
    checked = line.run("check")
    assert checked.exit_code == 0
    assert "own.pem: the certificate expires in 19 days; renew it, then `plughost reload`" in checked.output
    found = json.loads(line.run("doctor", "--json").output)
    assert [each["todo"] for each in found if each["about"] == "certificate"] == ["Renew it, then `plughost reload`."]


def test_the_doctor_warns_of_a_certificate_as_the_start_does(line: Line) -> None:
    """A certificate that clients refuse is not called good: here it lacks its intermediate, and is not valid yet."""
    line.install("good")
    issued = Authority().issue(start=2)
    (line.folder / "own.pem").write_bytes(issued.pem + issued.key_pem())
    line.configure("[tls]\ncertificate = 'own.pem'")
    found = [each for each in json.loads(line.run("doctor", "--json").output) if each["about"] == "certificate"]
    assert ["is not valid before" in found[0]["found"], "fullchain.pem" in found[1]["todo"]] == [True, True]
    assert {each["verdict"] for each in found} == {"advice"}


def test_the_doctor_asks_what_was_meant(line: Line) -> None:
    """Of a warning, what to do is a sentence of its own, also if it is a question."""
    line.install("good")
    line.configure("disabled = ['godo']")
    found = json.loads(line.run("doctor", "--dev", "--json").output)
    assert "Did you mean good?" in [each["todo"] for each in found if each["about"] == "settings"]


@pytest.mark.parametrize("arguments", [[], ["--dev"]])
def test_the_doctor_reports_a_key_of_another_certificate(line: Line, arguments: list[str]) -> None:
    """No start would use it, and a reload keeps the earlier certificate."""
    line.install("good")
    authority = Authority()
    (line.folder / "own.pem").write_bytes(authority.issue().pem + authority.issue().key_pem())
    line.configure("[tls]\ncertificate = 'own.pem'")
    found = {each["about"]: each for each in json.loads(line.run("doctor", "--json", *arguments).output)}["certificate"]
    assert (found["verdict"], "is not the private key" in found["found"]) == ("problem", True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[plugins.keeper]\nusers = [{token = 'hash'}]", ["plugins.keeper.users"]),
        ("[plugins.keeper]\nusers = [{token = 'https://db'}, {token = 'hash'}]", ["plugins.keeper.users"]),
        ("[tls]\npassword = 'sesame'", ["tls.password"]),
        ("[stores.urls]\none = 'postgresql://db/shelf'\ntwo = 'postgresql://me:sesame@db/shelf'", ["stores.urls"]),
        ("[stores.urls]\none = 'postgresql://me@db:5432/shelf'", []),
        ("", []),
    ],
)
def test_the_doctor_reports_secrets_that_everybody_can_read(line: Line, settings: str, message: list[str]) -> None:
    """Secrets in plugins' tables count, too; a URL without a password is none."""
    line.install("keeper", SECRETS_PLUGIN)
    line.configure(settings)
    (line.folder / "plughost.toml").chmod(0o644)
    line.folder.chmod(0o755)
    found = json.loads(line.run("doctor", "--dev", "--json").output)
    remedy = f"Make it readable only by the host's user: chmod 600 {line.folder / 'plughost.toml'}"
    advice = [remedy] * len(message)
    assert [each["todo"] for each in found if each["about"] == "permissions"] == advice
    assert all(key in str(found) for key in message)
    line.folder.chmod(0o750)
    assert "permissions" not in {each["about"] for each in json.loads(line.run("doctor", "--dev", "--json").output)}


@pytest.mark.parametrize("answers", [True, False])
def test_the_doctor_says_whether_a_database_answers(line: Line, answers: bool) -> None:
    """Each database of another process is asked once, whatever number of stores it has."""
    install_store_plugin(line, "kept")
    install_store_plugin(line, "held")
    with store_settings("postgresql") as settings:
        url = settings["stores"]["url"] if answers else "postgresql://nobody@127.0.0.1:1/none"
        line.configure(f"[stores]\nurl = '{url}'")
        examined = line.run("doctor", "--json", "--dev")
    (found,) = [each for each in json.loads(examined.output) if each["about"] == "database"]
    assert (found["verdict"], bool(found["todo"])) == (("good", False) if answers else ("problem", True))

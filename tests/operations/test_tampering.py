"""Tampered files are refused, and untouched ones are installed."""

from __future__ import annotations

import io
import random
import shutil
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from plughost import CommandError
from plughost_packages.bundling import read_bundle
from plughost_packages.locking import LOCK_NAME, Locked, hash_of, read_lock, write_lock
from plughost_packages.verifying import verify_wheel

from .wheels import build_wheel, code_of, own_record, record_of, rewrite, speaker_wheel

if TYPE_CHECKING:
    from .environments import Sandbox

TIMES: Final = 100
"""How many of each kind are tried, each from a seed of its own."""


def _tamper_wheel(wheel: Path, chance: random.Random) -> None:
    """Make one change that leaves a valid archive with a wrong RECORD."""
    evil = f"import os  # {chance.random()}\n".encode()
    rewrite(
        wheel,
        chance.choice(
            [
                lambda content: content.update({code_of(content): content[code_of(content)] + evil}),
                lambda content: content.update({code_of(content): evil}),
                lambda content: content.update({f"evil{chance.randrange(99)}.py": evil}),
                lambda content: content.update({"evil.pth": b"import os\n"}),
                lambda content: content.update({"../evil.py": evil}),
                lambda content: content.pop(code_of(content)),
                lambda content: content.pop(record_of(content)),
                lambda content: content.update(
                    {record_of(content): content[record_of(content)].replace(b"sha256", b"md5")}
                ),
                lambda content: content.update(
                    {record_of(content): content[record_of(content)].replace(b"sha256=", b"")}
                ),
                lambda content: content.update({record_of(content): b"\xff\xfe"}),
                lambda content: content.update(
                    {name: data + b"\nRequires-Dist: evil\n" for name, data in content.items() if "METADATA" in name}
                ),
            ]
        ),
    )


def _any_wheel(folder: Path, chance: random.Random, name: str = "greeter") -> Path:
    version = f"{chance.randrange(9)}.{chance.randrange(99)}"
    files = {f"data{number}.txt": str(chance.random()) for number in range(chance.randrange(1, 9))}
    return speaker_wheel(folder, name, version, f"word {chance.random()}", files=files)


def _is_refused(check: Callable[[], object]) -> bool:
    try:
        check()
    except CommandError:
        return True
    return False


def test_all_of_a_hundred_tampered_wheels_are_refused_and_good_ones_accepted(tmp_path: Path) -> None:
    """RECORD reveals any changed, added or removed file in a wheel."""
    for seed in range(TIMES):
        chance = random.Random(seed)
        wheel = _any_wheel(tmp_path / str(seed), chance)
        verify_wheel(wheel)
        _tamper_wheel(wheel, chance)
        assert _is_refused(lambda: verify_wheel(wheel)), f"seed {seed}"  # noqa: B023 - called at once


def _any_bundle(folder: Path, chance: random.Random) -> Path:
    wheels = [_any_wheel(folder, chance, name) for name in ("greeter", "other", "third")]
    write_lock(
        folder / LOCK_NAME,
        [
            Locked(
                name=f"plughost-{wheel.name.split('-')[0][9:]}",
                version=wheel.name.split("-")[1],
                hashes=(hash_of(wheel),),
            )
            for wheel in wheels
        ],
    )
    return folder


def _tamper_bundle(folder: Path, chance: random.Random) -> None:
    """Change a wheel or the lock file, sometimes carefully; the checksum may be removed as well."""
    wheels = sorted(folder.glob("*.whl"))
    wheel = chance.choice(wheels)
    lock = folder / LOCK_NAME

    def carefully(content: dict[str, bytes]) -> None:
        content[code_of(content)] += b"import os\n"
        own_record(content)

    def flip() -> None:
        data = bytearray(wheel.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        wheel.write_bytes(bytes(data))

    def exchange() -> None:
        first, second = chance.sample(wheels, 2)
        data = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(data)

    def without_checksum(old: str, new: str) -> None:
        lock.write_text(lock.read_text().partition("\n")[2].replace(old, new, 1))

    entry = read_lock(lock)[wheels.index(wheel)]
    deeds: list[Callable[[], object]] = [
        lambda: rewrite(wheel, carefully),
        lambda: _tamper_wheel(wheel, chance),
        flip,
        exchange,
        wheel.unlink,
        lambda: wheel.rename(folder / wheel.name.replace("plughost_", "plughost_x")),
        lambda: _any_wheel(folder, chance, "evil"),
        lambda: _any_wheel(folder, random.Random(chance.random()), "greeter"),
        lambda: without_checksum(str(entry), f"{entry.name}==77"),
        lambda: without_checksum(entry.hashes[0], "sha256:" + "0" * 64),
        lambda: without_checksum(f" \\\n    --hash={entry.hashes[0]}", ""),
        lambda: without_checksum(str(entry), f"--index-url https://evil.example/simple\n{entry}"),
        lambda: without_checksum(str(entry), f"{entry.name} @ https://evil.example/x.whl"),
        lambda: _tamper_lock(lock, chance),
        lock.unlink,
    ]
    chance.choice(deeds)()


def _tamper_lock(lock: Path, chance: random.Random) -> None:
    """Change, add or remove a character or a line after the checksum."""
    head, _, text = lock.read_text().partition("\n")
    lines = text.splitlines(keepends=True)
    at = chance.randrange(len(text))
    line = chance.randrange(len(lines))
    text = chance.choice(
        [
            text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :],
            text[:at] + text[at + 1 :],
            text[:at] + "1" + text[at:],
            "".join([*lines[:line], *lines[line + 1 :]]),
            f"{text}evil==1.0\n",
            f"{text}--index-url https://evil.example/simple\n",
        ]
    )
    lock.write_text(f"{head}\n{text}")


def test_all_of_a_hundred_tampered_bundles_are_refused_and_good_ones_accepted(tmp_path: Path) -> None:
    """One bit of a wheel or an unlocked wheel is enough."""
    for seed in range(TIMES):
        chance = random.Random(seed)
        folder = _any_bundle(tmp_path / str(seed), chance)
        assert len(read_bundle(folder)) == 3
        _tamper_bundle(folder, chance)
        assert _is_refused(lambda: read_bundle(folder)), f"seed {seed}"  # noqa: B023 - called at once


def test_all_of_a_hundred_tampered_lock_files_are_refused_and_good_ones_accepted(tmp_path: Path) -> None:
    """Each character after the checksum counts."""
    for seed in range(TIMES):
        chance = random.Random(seed)
        lock = _any_bundle(tmp_path / str(seed), chance) / LOCK_NAME
        assert len(read_lock(lock)) == 3
        _tamper_lock(lock, chance)
        assert _is_refused(lambda: read_lock(lock)), f"seed {seed}"  # noqa: B023 - called at once


def test_a_tampered_wheel_is_refused_before_any_change(sandbox: Sandbox) -> None:
    """From a folder or by its path, the message names the file, and nothing has changed."""
    wheel = speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello")
    rewrite(wheel, lambda content: content.update({code_of(content): b"evil = 1\n"}))
    before = sandbox.files()
    for given in ("greeter", wheel):
        output = sandbox.run("install", given, code=1)
        assert "speaking_greeter/__init__.py differs from its RECORD" in output
    assert sandbox.files() == before


def test_a_tampered_bundle_is_refused_and_a_good_one_installed(sandbox: Sandbox) -> None:
    """Even a carefully rebuilt wheel has another hash than the lock file."""
    wheel = speaker_wheel(sandbox.folder / "bundle", "greeter", "1.0", "hello")
    locked = [Locked(name="plughost-greeter", version="1.0", hashes=(hash_of(wheel),))]
    write_lock(wheel.with_name(LOCK_NAME), locked)
    shutil.copytree(wheel.parent, sandbox.folder / "copy")

    def carefully(content: dict[str, bytes]) -> None:
        content[code_of(content)] += b"evil = 1\n"
        own_record(content)

    rewrite(wheel, carefully)
    output = sandbox.run("install", "--bundle", "bundle", code=1)
    assert "The bundle bundle was changed after it was made: no file has the hash of plughost-greeter==1.0" in output
    assert hash_of(sandbox.folder / "copy" / wheel.name)[7:] in sandbox.run("install", "--bundle", "copy")
    assert sandbox.versions()["plughost_greeter"] == "1.0"


def test_file_source_and_hash_are_shown_before_an_installation(sandbox: Sandbox) -> None:
    """Requirements are shown, too, and a dry run shows the same."""
    helper = build_wheel(sandbox.wheels, "plughost-helper", "1.0", {"helping.py": ""})
    wheel = speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", requires=["plughost-helper"])
    output = sandbox.run("install", "greeter", "--dry-run")
    for each in (helper, wheel):
        assert each.name in output
        assert hash_of(each)[7:] in output
        assert each.as_uri() in output
    changes = sandbox.json("install", "greeter")["changes"]
    assert [each["sha256"] for each in changes] == [hash_of(wheel)[7:], hash_of(helper)[7:]]
    assert "plughost-helper" in sandbox.run("uninstall", "greeter", "--dry-run")  # nobody requested it by name


def _running_source(folder: Path, name: str, mark: Path) -> Path:
    """Write a source distribution whose build backend leaves a mark at any call."""
    backend = f"open({str(mark)!r}, 'w').close()\nraise SystemExit('built')\n"
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "evil"\nbackend-path = ["."]\n',
        "evil.py": backend,
    }
    archive = folder / f"{name.replace('-', '_')}-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        for each, text in files.items():
            entry = tarfile.TarInfo(f"{name.replace('-', '_')}-1.0/{each}")
            entry.size = len(text)
            opened.addfile(entry, io.BytesIO(text.encode()))
    return archive


def test_no_code_of_a_package_runs_before_it_is_shown(sandbox: Sandbox) -> None:
    """A source distribution is not built, even if it is found as a requirement."""
    mark = sandbox.folder / "was-run"
    _running_source(sandbox.wheels, "plughost-evil", mark)
    speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", requires=["plughost-evil"])
    for name in ("evil", "greeter"):
        output = sandbox.run("install", name, code=1)
        assert "Only wheels are used" in output
        assert not mark.exists()


def test_a_source_distribution_is_built_only_on_request(sandbox: Sandbox) -> None:
    """It is shown with its hash; without a yes, nothing of it has run, also in a dry run."""
    mark = sandbox.folder / "was-run"
    archive = _running_source(sandbox.folder, "plughost-evil", mark)
    shutil.copy(archive, sandbox.folder / "plughost-evil.tgz")
    for given, typed in ((f"plughost-evil @ {archive.as_uri()}", "n\n"), ("plughost-evil.tgz", ""), (archive, "n\n")):
        output = sandbox.run("install", given, "--dry-run", "--json", code=1, typed=typed)
        assert "is not a wheel: reading its metadata runs its code" in output
        assert not mark.exists()
    assert hash_of(archive) in output
    shutil.unpack_archive(archive, sandbox.folder, filter="data")
    output = sandbox.run("install", "--as-is", "file:plughost_evil-1.0", "--dry-run", code=1, typed="n\n")
    assert "is not a wheel: reading its metadata runs its code" in output
    assert not mark.exists()
    sandbox.run("install", archive, "--dry-run", code=1, typed="y\n")
    assert mark.exists()
    mark.unlink()
    sandbox.run("install", archive, "--yes", code=1)
    assert mark.exists()


@pytest.mark.parametrize("name", ["-rfile", "--index-url=https://evil.example", "messages --pre", "./x -r y"])
def test_a_name_that_contains_an_option_is_refused(sandbox: Sandbox, name: str) -> None:
    """This also holds after `--`, and where names are taken unchanged."""
    for more in ([], ["--as-is"]):
        assert "it begins with a hyphen, or contains options" in sandbox.run("install", *more, "--", name, code=1)


def test_only_configured_indexes_are_searched(sandbox: Sandbox) -> None:
    """Without an option, a setting or pip's configuration, only folders are searched; the message says what to do."""
    nowhere: dict[str, Any] = {
        "PIP_NO_INDEX": "0",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
        "https_proxy": "http://127.0.0.1:9",
    }
    further = {"PIP_EXTRA_INDEX_URL": "https://127.0.0.1:9/simple"}  # in addition, pip would search PyPI
    output = sandbox.run("install", "greeter", code=1, **nowhere, **further)
    assert "No index was named" in output
    assert "127.0.0.1" not in output
    assert "Could not fetch" not in output
    sandbox.put(speaker_wheel(sandbox.folder / "before", "greeter", "0.9", "hi"))
    assert "No index or folder was named" in sandbox.run("install", "--upgrade", "greeter", code=1, **nowhere)
    wheel = speaker_wheel(sandbox.folder / "shop", "greeter", "1.0", "hello")
    assert hash_of(wheel)[7:] in sandbox.run("install", "-U", "greeter", "-f", "shop", "--dry-run", **nowhere)
    with (sandbox.folder / "plughost.toml").open("a") as file:
        file.write('\n[plugins.packages]\nfind_links = ["shop"]\n')
    assert hash_of(wheel)[7:] in sandbox.run("install", "-U", "greeter", **nowhere)
    assert "nothing to install" in sandbox.run("install", "-U", "greeter", **nowhere)


def test_a_requirement_with_its_own_url_is_refused(sandbox: Sandbox) -> None:
    """Requirements come from the operator's places, or the operator names them, too."""
    helper = build_wheel(sandbox.folder / "elsewhere", "plughost-helper", "1.0", {"helping.py": ""})
    placed = f"plughost-helper @ {helper.as_uri()}"
    speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", requires=[placed])
    before = sandbox.files()
    output = sandbox.run("install", "greeter", code=1)
    assert f"that you did not name: plughost-helper from {helper.as_uri()}" in output
    assert sandbox.files() == before
    assert hash_of(helper)[7:] in sandbox.run("install", "greeter", placed, "--dry-run")


def test_urls_in_requirements_are_neither_opened_nor_built(sandbox: Sandbox) -> None:
    """A URL or path in a package's requirement or in a constraint is not used."""
    mark = sandbox.folder / "was-run"
    archive = _running_source(sandbox.folder, "plughost-evil", mark)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        there = f"http://127.0.0.1:{server.getsockname()[1]}/{archive.name}"
        for url in (there, archive.as_uri()):
            speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", requires=[f"plughost-evil @ {url}"])
            assert f"that you did not name: plughost-evil from {url}" in sandbox.run("install", "greeter", code=1)
        speaker_wheel(sandbox.wheels, "greeter", "1.0", "hello", requires=["plughost-evil"])
        constraints = sandbox.folder / "constraints.txt"
        constraints.write_text(f"plughost-evil @ {archive.as_uri()}\n")
        assert "that you did not name" in sandbox.run("install", "greeter", "-c", constraints, code=1)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not mark.exists()


def test_disallowed_distributions_are_neither_installed_nor_locked_nor_served(
    sandbox: Sandbox, wheelhouse: Path
) -> None:
    """The setting has names and ranges of versions; a reload to another version is refused."""
    settings = sandbox.folder / "plughost.toml"
    given = settings.read_text()
    allowed = 'allowed = ["plughost-packages", "Plughost_Greeter < 2"]\n'
    settings.write_text(allowed + given)
    for version in ("1.0", "2.0"):
        speaker_wheel(sandbox.wheels, "greeter", version, "hello")
    speaker_wheel(sandbox.wheels, "other", "1.0", "other")
    output = sandbox.run("install", "other", code=1)
    assert "plughost-other 1.0 is not allowed: the setting allowed does not name it" in output
    with sandbox.serving() as host:
        sandbox.run("install", "greeter==1.0")
        assert host.get("/greeter").status_code == 200
        output = sandbox.run("install", "greeter==2.0", code=1)
        assert "plughost-greeter 2.0 is not allowed: the setting allowed has Plughost_Greeter<2" in output
        sandbox.pip("install", "--no-deps", "plughost-greeter==2.0")
        assert "plughost-greeter 2.0 is not allowed" in sandbox.run("reload", code=1)
        assert host.get("/greeter").json()["count"] == 2
    assert "plughost-greeter 2.0 is not allowed" in sandbox.run("check", code=1)
    assert "plughost-greeter 2.0 is not allowed" in sandbox.run("lock", "-f", wheelhouse, code=1)
    settings.write_text('allowed = ["greeter[x]"]\n' + given)
    assert "is more than a distribution with a range of versions" in sandbox.run("check", code=2)

"""Each service installs and runs alone, from real wheels in a clean virtual environment with its requirements.

Only with `PLUGHOST_TEST_ALL=1`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from tests.integration.kit import LANES, PATIENCE, host_process
from tests.integration.test_subsets import PROBES, expected, without_names

ROOT: Final = Path(__file__).parents[2]
# The distributions that each service installs with itself (DESIGN, Stores).
BROUGHT: Final = {
    "catalog-v1": {"catalog-core"},
    "catalog-v2": {"catalog-core"},
    "catalog-v3": {"catalog-core", "catalog-store"},
    "catalog-v4": {"catalog-core", "catalog-store"},
    "catalog-crud": {"catalog-core", "catalog-store"},
}
SERVICES: Final = tuple(PROBES)
NEEDED: Final = sorted({*SERVICES}.union(*(BROUGHT.get(each, ()) for each in SERVICES)))


@pytest.fixture(scope="session")
def uv() -> str:
    """The program that makes the environments; pip would need minutes for them."""
    found = shutil.which("uv")
    if found is None:
        pytest.skip("no service is installed alone: there is no uv")
    return found


@pytest.fixture(scope="session")
def wheels(uv: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels of the host and every service, built like a release."""
    sources, folder = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheels")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "tests", ".*")
    shutil.copytree(ROOT / "host", sources / "plughost" / "host", ignore=ignore)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources / "plughost")
    for name in NEEDED:
        shutil.copytree(ROOT / "plugins" / name, sources / name, ignore=ignore)
    builder = tmp_path_factory.mktemp("builder") / "venv"
    run(uv, "venv", "--quiet", builder)
    run(uv, "pip", "install", "--quiet", "--python", builder, "setuptools >= 77")
    options = ("--python", builder / "bin" / "python", "--no-build-isolation", "--out-dir", folder)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: run(uv, "build", "--wheel", *options, each), sources.iterdir()))
    return folder


def run(*command: str | Path) -> str:
    """Run a command that must succeed, and return its output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("service", SERVICES)
def test_a_service_installs_and_runs_alone(service: str, uv: str, wheels: Path, tmp_path: Path) -> None:
    """Only its requirements are installed with it; it answers on its site's listeners, and no other port is open."""
    python = tmp_path / "venv" / "bin" / "python"
    run(uv, "venv", "--quiet", tmp_path / "venv")
    run(uv, "pip", "install", "--quiet", "--python", python, "--find-links", wheels, f"plughost-{service}")
    listed: list[dict[str, Any]] = json.loads(run(uv, "pip", "list", "--format", "json", "--python", python))
    ours = {each["name"] for each in listed if each["name"].startswith("plughost")}
    assert ours == {"plughost", *(f"plughost-{name}" for name in {service, *BROUGHT.get(service, ())})}
    site, _ = PROBES[service]
    with host_process(tmp_path, python=python) as host:
        listeners = host.ask("status")["listeners"]
        assert {(each["site"], each["scheme"]) for each in listeners} == {(site, "http"), (site, "https")}
        for lane in LANES:
            with host.client(lane, site) as client:
                answered = {name for name, (_, other) in PROBES.items() if client.get(other).status_code == 200}
                assert answered == {service}
        assert host.stop() == 0
    routes = json.loads(run(python.with_name("plughost"), "routes", "--json", "--config", tmp_path / "plughost.toml"))
    assert {(each["site"], without_names(each["path"])) for each in routes} == expected((service,))

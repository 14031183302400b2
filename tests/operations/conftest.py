"""Fixtures of the tests of operators' commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from plughost import CommandError, Environment
from plughost_packages.pip import pip_command
from plughost_packages.repacking import repack

from .environments import Sandbox, Supplies
from .wheels import checkout_wheel, host_requirements, host_wheel


@pytest.fixture(scope="session")
def supplies(tmp_path_factory: pytest.TempPathFactory) -> Supplies:
    """The shared contents of sandboxes; the test is skipped if there is no pip."""
    try:
        pip_command()
    except CommandError as error:
        pytest.skip(str(error))
    return Supplies(tmp_path_factory.mktemp("supplies"))


@pytest.fixture
def sandbox(tmp_path: Path, supplies: Supplies) -> Sandbox:
    """An environment with the host, and a folder of wheels as pip's only source."""
    return Sandbox(tmp_path, supplies)


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels of the host and its requirements, made from the tests' own packages."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    environment = Environment()
    for key in environment.closure(canonicalize_name(Requirement(each).name) for each in host_requirements()):
        assert repack(environment.installed[key], folder) is not None, f"{key} can't be repacked"
    host_wheel(folder)
    checkout_wheel(folder, "packages", "0.1.0")
    return folder

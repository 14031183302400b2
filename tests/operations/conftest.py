"""Fixtures of the tests of operators' commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from plughost._api.errors import CommandError
from plughost._operations.pip import pip_command
from plughost._operations.repacking import repack
from plughost._plugins.environment import Environment

from .environments import Sandbox, Supplies, host_requirements, host_wheel


@pytest.fixture(scope="session")
def supplies(tmp_path_factory: pytest.TempPathFactory) -> Supplies:
    """What sandboxes are made of; the test is skipped where there is no pip to install with."""
    try:
        pip_command()
    except CommandError as error:
        pytest.skip(str(error))
    return Supplies(tmp_path_factory.mktemp("supplies"))


@pytest.fixture
def sandbox(tmp_path: Path, supplies: Supplies) -> Sandbox:
    """An environment with the host, and a folder of wheels that is all that pip knows of."""
    return Sandbox(tmp_path, supplies)


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels of the host and all that it requires, made of what the tests run on."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    environment = Environment()
    for key in environment.closure(canonicalize_name(Requirement(each).name) for each in host_requirements()):
        assert repack(environment.installed[key], folder) is not None, f"{key} can't be repacked"
    host_wheel(folder)
    return folder

"""Refuse a generation that the operator doesn't want: one that lacks a required plugin, or what serves now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost._plugins.registry import State

if TYPE_CHECKING:
    from collections.abc import Collection

    from plughost._plugins.registry import Registry
    from plughost._runtime.generation import Generation


class GenerationRefused(Exception):  # noqa: N818 - it is a decision of the host, not an error in it
    """The host refuses to start: a required plugin does not serve, or the settings ask for what can't be had.

    Attributes:
        registry: Every plugin and what became of it.
    """

    def __init__(self, message: str, registry: Registry) -> None:
        """Keep the registry beside the message."""
        super().__init__(message)
        self.registry = registry


def refuse_incomplete(generation: Generation, *, strict: bool = False) -> None:
    """Refuse a generation that lacks a required plugin.

    Raises:
        GenerationRefused: A required plugin is missing or does not serve, or the settings ask for what can't be had.
    """
    registry, host = generation.registry, generation.settings.host
    problems = [*generation.problems]
    for name in host.required:
        entry = registry.get(name)
        if entry is None:
            problems.append(f"the required plugin {name} is not installed")
        elif entry.state is not State.ACTIVE:
            problems.append(f"the required plugin {name} is {entry.state}")
    if strict or host.strict:
        problems += [f"{entry.name} is {entry.state}" for entry in registry if entry.failure is not None]
    if problems:
        raise GenerationRefused("; ".join(dict.fromkeys(problems)), registry)


def refuse_losses(running: Registry, following: Registry, accept: Collection[str]) -> None:
    """Refuse a generation in which a plugin that serves now would fail.

    Raises:
        GenerationRefused: There is one that is not accepted.
    """
    serving = {entry.name for entry in running.active()} - set(accept)
    lost = [entry for entry in following if entry.failure is not None and entry.name in serving]
    if lost:
        raise GenerationRefused(
            "; ".join(f"{entry.installed.label} would be {entry.state}" for entry in lost), following
        )

"""Errors that plugins raise or catch."""

from __future__ import annotations


class PluginError(Exception):
    """A plugin can't be used for a reason that the host can explain.

    Attributes:
        cause: What happened.
        advice: What to do next. Empty if only the plugin's author can fix it. The host then says so.
    """

    def __init__(self, cause: str, advice: str = "") -> None:
        super().__init__(f"{cause}. {advice}".rstrip())
        self.cause = cause
        self.advice = advice


class NotRunning(Exception):  # noqa: N818 - reads as what was found
    """No host runs on the data folder."""


class CommandError(Exception):
    """A command can't be carried out. The message says why, and what to do."""


class CertificateError(Exception):
    """A certificate or key cannot be used. The message says which file, why, and what to do."""

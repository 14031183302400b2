"""What operators do to the set of plugins: install, uninstall, switch on and off, lock and bundle."""

from __future__ import annotations


class OperationError(Exception):
    """Something that was asked for can't be done; the message says why, and what to do."""

"""Optional libraries: imported when a setting needs one. Errors say how to install it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

ZSTD: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
"""The module for Zstandard, in the standard library from Python 3.14 on."""


class LibraryError(Exception):
    """An optional library can't be used. The message says which, why, and what to do."""


def import_optional(module: str, *, extra: str) -> Any:
    """Import an optional library, or raise LibraryError if it is not installed or its import raises any exception."""
    try:
        return import_module(module)
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError) and (error.name or "") in {module, module.partition(".")[0]}
        why = "is not installed" if is_missing else f"can't be imported ({type(error).__name__}: {error})"
        option = "" if is_missing else "--force-reinstall "
        message = f"{module} {why}: run pip install {option}'plughost[{extra}]'"
        raise LibraryError(message) from error

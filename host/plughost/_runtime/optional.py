"""Optional libraries: imported when a setting needs one. Errors say how to install it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from plughost._settings.models import HostSettings

ZSTD: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
"""The module for Zstandard, in the standard library from Python 3.14 on."""


class LibraryError(Exception):
    """An optional library can't be used. The message says which, why, and what to do."""


def import_optional(module: str, *, extra: str) -> Any:
    """Import an optional library.

    Raises:
        LibraryError: It is not installed, or its import raises any exception.
    """
    try:
        return import_module(module)
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError) and (error.name or "") in {module, module.partition(".")[0]}
        why = "is not installed" if is_missing else f"can't be imported ({type(error).__name__}: {error})"
        option = "" if is_missing else "--force-reinstall "
        message = f"{module} {why}: run pip install {option}'plughost[{extra}]'"
        raise LibraryError(message) from error


def library_problems(host: HostSettings) -> Iterator[str]:
    """Yield a sentence for each setting of the host that needs a library which can't be used."""
    if host.rate_limits.shared:
        yield from _library_problem("rate_limits.storage", "redis", "redis")
    for site, table in host.sites:
        if "zstd" in table.compression.encodings:
            yield from _library_problem(f"sites.{site}.compression.encodings", ZSTD, "compression")


def _library_problem(setting: str, module: str, extra: str) -> Iterator[str]:
    try:
        import_optional(module, extra=extra)
    except LibraryError as error:
        yield f"{setting}: {error}"

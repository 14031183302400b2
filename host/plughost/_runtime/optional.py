"""Optional libraries: imported when a setting asks for one, and explained where that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from plughost._settings.models import HostSettings

ZSTD: Final = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
"""The module for Zstandard, which comes with Python from 3.14 on."""


class LibraryError(Exception):
    """An optional library can't be used. The message says which, why, and what to do."""


def optional(module: str, *, extra: str) -> Any:
    """Import an optional library.

    Raises:
        LibraryError: It is not installed, or it is, and importing it fails, with whatever exception.
    """
    try:
        return import_module(module)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and (error.name or "") in {module, module.partition(".")[0]}
        why = "is not installed" if missing else f"can't be imported ({type(error).__name__}: {error})"
        again = "" if missing else "--force-reinstall "
        message = f"{module} {why}: run pip install {again}'plughost[{extra}]'"
        raise LibraryError(message) from error


def unusable(host: HostSettings) -> Iterator[str]:
    """Yield a sentence for each setting of the host's own that asks for a library that can't be used."""
    if host.rate_limits.shared:
        yield from _trouble("rate_limits.storage", "redis", "redis")
    for site, table in host.sites:
        if "zstd" in table.compression.encodings:
            yield from _trouble(f"sites.{site}.compression.encodings", ZSTD, "compression")


def _trouble(setting: str, module: str, extra: str) -> Iterator[str]:
    try:
        optional(module, extra=extra)
    except LibraryError as error:
        yield f"{setting}: {error}"

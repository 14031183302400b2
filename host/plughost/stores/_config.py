"""The settings of stores: where they are, and how long to wait for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from plughost._settings.masking import mask_password
from plughost.stores._errors import SetupError

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
_HOST: Final = r"(\[[^]@/?]*\]|[^][@/?:,]*)(:\d*)?"
_URL: Final = re.compile(rf"postgres(ql)?://([^][@/?]*@)?{_HOST}(,{_HOST})*(/[^@?]*)?(\?.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Time limits of a store, its connections, and whether it is only read: as `StoreTuning` describes the settings."""

    patience: float = 5.0
    connect_timeout: int = 3
    statement_timeout: float = 30.0
    pause: float = 1.0
    pool_size: int = 10
    pool_idle: float = 10.0
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig(Tuning):
    """Settings of one store.

    Attributes:
        dialect: `sqlite` or `postgresql`.
        path: The SQLite file, absolute. None for PostgreSQL.
        url: The PostgreSQL URL. None for SQLite.
    """

    dialect: str
    path: Path | None = None
    url: str | None = None

    @property
    def place(self) -> str:
        """Where the data is: the file, or the URL with its password masked."""
        return str(self.path) if self.url is None else mask_password(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoresConfig(Tuning):
    """Settings of all stores of a host. `tuned` overrides those of `Tuning` for single stores.

    Attributes:
        folder: Where the SQLite files are. Made with mode 0700 when the first store opens.
        url: A `postgresql://` URL for every store, or `sqlite`. None means `sqlite`.
        urls: The same for single stores, by store name.
        tuned: Settings of `Tuning` for single stores, by store name and setting.
    """

    folder: Path
    url: str | None = None
    urls: Mapping[str, str] = field(default_factory=dict)
    tuned: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of(self, store: str) -> StoreConfig:
        """Return the settings of one store. `SetupError` if its URL is malformed or of another kind of database."""
        tuning: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(Tuning)}
        variable = variable_name(store)
        tuning.update({**self.tuned.get(store, {}), **self.tuned.get(variable, {})})
        url = self.urls.get(variable, self.urls.get(store, self.url)) or SQLITE
        if url == SQLITE:
            return StoreConfig(dialect=SQLITE, path=(self.folder / f"{store}.sqlite3").absolute(), **tuning)
        if _URL.fullmatch(url):
            return StoreConfig(dialect=POSTGRESQL, url=url, **tuning)
        if url.startswith(("postgresql:", "postgres:")):  # libpq's message would contain a part of the password
            raise SetupError(
                f"The URL of the store {store} is malformed: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
                "write / ? @ [ and ] in a part as %2F %3F %40 %5B and %5D, and the port as a number."
            )
        raise SetupError(
            f"The store {store} is set to {mask_password(url)!r}: use a postgresql:// URL, "
            f"or {SQLITE!r} for a file under the data folder."
        )


def variable_name(store: str) -> str:
    """Return a store's name as environment variables write it, which override the settings file."""
    return store.replace("-", "_")

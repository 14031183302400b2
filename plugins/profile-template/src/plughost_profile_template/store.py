"""The store `profiles` and what can be done with it; the only module of the plugin that knows Pony."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from pony import orm

from plughost import Store
from plughost.stores import Duplicate

if TYPE_CHECKING:
    from plughost.stores import OpenStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """How a user likes the app."""

    use_metric_system: bool = True
    enable_notifications: bool = True
    dark_mode_preference: str = "SYSTEM"
    rest_timer_duration: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A profile as it is kept; times are milliseconds since 1970."""

    user_id: str
    display_name: str
    email: str | None
    profile_image_url: str | None
    date_joined: int
    fitness_level: str
    height_cm: int | float | None
    weight_kg: int | float | None
    date_of_birth: int | None
    gender: str
    is_premium: bool
    settings: Preferences
    updated_at: int


def entities(db: Any) -> Any:
    """Define the entity on Pony's database."""

    class ProfileEntity(db.Entity):  # type: ignore[misc] # Pony has no types
        _table_ = "profiles"
        owner = orm.PrimaryKey(str, 255, autostrip=False)
        user_id = orm.Required(str, 36, unique=True, autostrip=False)
        display_name = orm.Required(str, 100, autostrip=False)
        email = orm.Optional(str, 255, nullable=True, autostrip=False)
        profile_image_url = orm.Optional(str, 2000, nullable=True, autostrip=False)
        date_joined = orm.Required(int, size=64)
        fitness_level = orm.Required(str, 20)
        height_cm = orm.Optional(float)
        weight_kg = orm.Optional(float)
        date_of_birth = orm.Optional(int, size=64)
        gender = orm.Required(str, 20)
        is_premium = orm.Required(bool)
        use_metric_system = orm.Required(bool)
        enable_notifications = orm.Required(bool)
        dark_mode_preference = orm.Required(str, 20)
        rest_timer_duration = orm.Required(int)
        updated_at = orm.Required(int, size=64)

    return db


STORE: Final = Store(
    name="profiles", entities=entities, migrations=files(__package__) / "migrations", tables=("profiles",)
)


def _find(db: Any, owner: str) -> Profile | None:
    row = db.ProfileEntity.get(owner=owner)
    return None if row is None else _profile(row)


def _change(db: Any, owner: str, fresh: Profile, changes: Mapping[str, Any], now: int) -> Profile:
    # Locked until the end of the transaction, so that no other change comes between reading and writing.
    row = db.ProfileEntity.get_for_update(owner=owner)
    if row is None:
        columns = asdict(fresh)
        row = db.ProfileEntity(owner=owner, **columns.pop("settings"), **columns)
    if changes:
        row.set(**changes, updated_at=now)
    return _profile(row)


def _profile(row: Any) -> Profile:
    """Return plain values: nothing of Pony may leave an operation."""
    columns = row.to_dict(exclude="owner")
    columns["settings"] = Preferences(**{name: columns.pop(name) for name in Preferences.__dataclass_fields__})
    for name in ("height_cm", "weight_kg"):
        columns[name] = _plain(columns[name])
    return Profile(**columns)


def _plain(number: float | None) -> int | float | None:
    """Return 180 for 180.0, as clients send it."""
    return int(number) if number is not None and float(number).is_integer() else number


class Profiles:
    """The profiles of all users."""

    def __init__(self, store: OpenStore[Any]) -> None:
        """Take the open store."""
        self._store = store

    def get(self, owner: str, fresh: Profile) -> Profile:
        """Return an owner's profile; at the first use, make it.

        Args:
            owner: Whose profile it is.
            fresh: What it is at first.
        """
        return self._store.read(_find, owner) or self.change(owner, fresh, {})

    def change(self, owner: str, fresh: Profile, changes: Mapping[str, Any]) -> Profile:
        """Change some fields of an owner's profile, in one transaction.

        Args:
            owner: Whose profile it is.
            fresh: What it is before its first change; its `updated_at` is now.
            changes: Fields to values; nothing changes where there are none.

        Returns:
            The profile as it is kept.
        """
        try:
            return self._store.run(_change, owner, fresh, changes, fresh.updated_at)
        except Duplicate:  # another request made it between our looking and making: now it is there to be changed
            return self._store.run(_change, owner, fresh, changes, fresh.updated_at)

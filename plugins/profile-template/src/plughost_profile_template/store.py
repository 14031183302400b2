"""The store `profiles` and its operations. No other module contains SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from plughost import Store
from plughost.stores import Duplicate

if TYPE_CHECKING:
    from plughost.stores import OpenStore, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """The user's preferences for the app."""

    use_metric_system: bool = True
    enable_notifications: bool = True
    dark_mode_preference: str = "SYSTEM"
    rest_timer_duration: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A stored profile. Times are in milliseconds since 1970."""

    user_id: str
    display_name: str
    email: str | None = None
    profile_image_url: str | None = None
    date_joined: int
    fitness_level: str = "BEGINNER"
    height_cm: int | float | None = None
    weight_kg: int | float | None = None
    date_of_birth: int | None = None
    gender: str = "UNDISCLOSED"
    is_premium: bool = False
    settings: Preferences = field(default_factory=Preferences)
    updated_at: int


STORE: Final = Store(name="profiles", migrations=files(__package__) / "migrations", tables=("profiles",))

_PREFERENCES: Final = tuple(each.name for each in fields(Preferences))
_COLUMNS: Final = (*(each.name for each in fields(Profile) if each.name != "settings"), *_PREFERENCES)
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM profiles WHERE owner = ?"  # noqa: S608 - all ours  # nosec B608
_INSERT: Final = f"INSERT INTO profiles (owner, {', '.join(_COLUMNS)}) VALUES (?{', ?' * len(_COLUMNS)})"  # noqa: S608 - all ours  # nosec B608
_FLAGS: Final = frozenset({"is_premium", "use_metric_system", "enable_notifications"})


def _find(session: Session, owner: str, lock: str = "") -> Profile | None:
    row = session.row(_SELECT + lock, owner)
    return None if row is None else _profile(row)


def _change(session: Session, owner: str, initial: Profile, changes: Mapping[str, Any]) -> Profile:
    # The row stays locked until the transaction ends, so that no other change is lost.
    profile = _find(session, owner, " FOR UPDATE" if session.dialect == "postgresql" else "")
    if profile is None:
        columns = asdict(initial)
        columns.update(columns.pop("settings"))
        session.change(_INSERT, owner, *(columns[name] for name in _COLUMNS))
        profile = initial
    if not changes:
        return profile
    values = {**changes, "updated_at": initial.updated_at}
    terms = ", ".join(f"{name} = ?" for name in values)
    session.change(f"UPDATE profiles SET {terms} WHERE owner = ?", *values.values(), owner)  # noqa: S608 - names of fields  # nosec B608
    changed = _find(session, owner)
    assert changed is not None
    return changed


def _profile(row: tuple[Any, ...]) -> Profile:
    columns = dict(zip(_COLUMNS, row, strict=True))
    for name in _FLAGS:
        columns[name] = bool(columns[name])
    for name in ("height_cm", "weight_kg"):
        columns[name] = _as_int_if_whole(columns[name])
    return Profile(settings=Preferences(**{name: columns.pop(name) for name in _PREFERENCES}), **columns)


def _as_int_if_whole(number: float | None) -> int | float | None:
    """Return 180 for 180.0, as a client sent it."""
    return int(number) if number is not None and float(number).is_integer() else number


class Profiles:
    """The profiles of all users."""

    def __init__(self, store: OpenStore[Session]) -> None:
        self._store = store

    def get(self, owner: str) -> Profile | None:
        """Return an owner's profile, or None before its first use."""
        return self._store.read(_find, owner)

    def change(self, owner: str, initial: Profile, changes: Mapping[str, Any]) -> Profile:
        """Change some fields of an owner's profile, in one transaction.

        Args:
            owner: The owner's key.
            initial: The profile to create if there is none; its `updated_at` is the time of the change.
            changes: New values by field; empty changes nothing.

        Returns:
            The stored profile.
        """
        try:
            return self._store.run(_change, owner, initial, changes)
        except Duplicate:  # a concurrent request has just created the profile, so now it can be changed
            return self._store.run(_change, owner, initial, changes)

"""Whose profile is whose, and what it is before anybody changed it."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

from plughost_profile_template.envelope import now
from plughost_profile_template.models import LONGEST_NAME
from plughost_profile_template.store import Preferences, Profile

if TYPE_CHECKING:
    from plughost import Principal


def owner_of(user: Principal | None) -> str:
    """Return the key of a user's profile; None is the profile that all share.

    Any name that an authenticator gives has one, also where no column would hold it.
    """
    if user is None:
        return "shared"
    if len(user.name) <= 200 and user.name.isprintable():
        return f"user:{user.name}"
    return f"sha256:{hashlib.sha256(user.name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def fresh_profile(user: Principal | None) -> Profile:
    """Return the profile of somebody who has none yet: an example to look at, or what is known of a user."""
    joined = now()
    if user is None:
        return Profile(
            user_id="demo",
            display_name="Alex Example",
            email="alex@example.org",
            profile_image_url="https://example.org/images/alex.png",
            date_joined=joined,
            fitness_level="INTERMEDIATE",
            height_cm=178,
            weight_kg=72.5,
            date_of_birth=631152000000,
            gender="MALE",
            is_premium=False,
            settings=Preferences(),
            updated_at=joined,
        )
    printable = "".join(filter(str.isprintable, user.name))
    return Profile(
        user_id=str(uuid.uuid4()),
        display_name=printable.partition("@")[0].strip()[:LONGEST_NAME] or "User",
        email=user.name if "@" in user.name and printable == user.name and len(user.name) <= 255 else None,
        profile_image_url=None,
        date_joined=joined,
        fitness_level="BEGINNER",
        height_cm=None,
        weight_kg=None,
        date_of_birth=None,
        gender="UNDISCLOSED",
        is_premium=False,
        settings=Preferences(),
        updated_at=joined,
    )

"""The owner of a profile, and the initial profile."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

from plughost_profile_template.envelope import now
from plughost_profile_template.models import MAX_NAME_LENGTH
from plughost_profile_template.store import Profile

if TYPE_CHECKING:
    from plughost import Principal


def owner_key(user: Principal | None) -> str:
    """Return the key of a user's profile; None means the shared profile.

    Names that don't fit the column are hashed.
    """
    if user is None:
        return "shared"
    if len(user.name) <= 200 and user.name.isprintable():
        return f"user:{user.name}"
    return f"sha256:{hashlib.sha256(user.name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def new_profile(user: Principal | None) -> Profile:
    """Return the initial profile: an example for the shared one, or what is known about a user."""
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
            updated_at=joined,
        )
    printable = "".join(filter(str.isprintable, user.name))
    return Profile(
        user_id=str(uuid.uuid4()),
        display_name=printable.partition("@")[0].strip()[:MAX_NAME_LENGTH] or "User",
        email=user.name if "@" in user.name and printable == user.name and len(user.name) <= 255 else None,
        date_joined=joined,
        updated_at=joined,
    )

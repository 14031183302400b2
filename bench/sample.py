"""What is measured with: the same products, message and profile for every server."""

from __future__ import annotations

from typing import Any, Final

CREATED: Final = "2026-11-22 10:30:00.123456"
MESSAGE: Final = "Water the plants in the hall, and close the window before it rains."
JOINED: Final = 1_790_000_000_000
PROFILE: Final[dict[str, Any]] = {
    "owner": "shared",
    "user_id": "demo",
    "display_name": "Alex Example",
    "email": "alex@example.org",
    "profile_image_url": "https://example.org/images/alex.png",
    "date_joined": JOINED,
    "fitness_level": "INTERMEDIATE",
    "height_cm": 178,
    "weight_kg": 72.5,
    "date_of_birth": 631_152_000_000,
    "gender": "MALE",
    "is_premium": False,
    "use_metric_system": True,
    "enable_notifications": True,
    "dark_mode_preference": "SYSTEM",
    "rest_timer_duration": 60,
    "updated_at": JOINED,
}
"""The profile that every plughost shows at first, as a row of the table `profiles`."""


def product(number: int) -> dict[str, Any]:
    """Return one of the products that are there at the start, counted from 1."""
    return {"sku": f"SKU-{number:012}", "name": "Green tea, 250 g", "price": 19.99, "stock": 12}

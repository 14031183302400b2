"""When each store was backed up last by `plughost stores backup`: a small file in the data folder."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from plughost._files import locked_folder, write_private

if TYPE_CHECKING:
    from pathlib import Path

_FILE: Final = "backups.json"


def note_backup(data_dir: Path, store: str) -> None:
    """Note that a store was backed up now, as far as the data folder can be written."""
    with suppress(OSError), locked_folder(data_dir):
        noted = {name: when.isoformat() for name, when in last_backups(data_dir).items()}
        write_private(data_dir / _FILE, json.dumps({**noted, store: datetime.now(UTC).isoformat()}).encode())


def last_backups(data_dir: Path) -> dict[str, datetime]:
    """Return when each store was backed up last, by store name. What can't be read counts as no backup."""
    try:
        noted = json.loads((data_dir / _FILE).read_text(encoding="utf-8"))
        return {str(name): datetime.fromisoformat(when) for name, when in noted.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}

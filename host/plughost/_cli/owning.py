"""Whose files are: what root's commands leave in a data folder belongs to the folder's owner."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

_OPENING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def give_to_owner(folder: Path) -> None:
    """Give what is root's in a data folder to the folder's owner, so that a host of that user can use it.

    The owner may write there and must not get anything else by it: links, and files that have another name, too, are
    left as they are.
    """
    if os.geteuid() != 0 or not folder.is_dir():
        return
    owner = folder.stat()
    if owner.st_uid == 0:
        return
    for _, folders, files, above in os.fwalk(folder):
        for name in (*folders, *files):
            with suppress(OSError):  # it is a link or a socket, or gone by now
                _give(os.open(name, _OPENING, dir_fd=above), owner)


def _give(descriptor: int, owner: os.stat_result) -> None:
    try:
        found = os.fstat(descriptor)
        alone = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
        if found.st_uid == 0 and alone:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
    finally:
        os.close(descriptor)

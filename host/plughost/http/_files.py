"""Files as answers: whole or a part, and only where the client hasn't got them already (RFC 9110, 8.8, 13 and 14)."""

from __future__ import annotations

import errno
import mimetypes
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import falcon

if TYPE_CHECKING:
    from collections.abc import Iterable

_OCTETS: Final = "application/octet-stream"
# What the system says of names that are no file's.
_NO_FILE: Final = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO}
_range: Final = re.compile(r"bytes=(?:([0-9]{1,19})-([0-9]{1,19})?|-([0-9]{1,19}))", re.IGNORECASE).fullmatch
_unfit: Final = re.compile(r'["\\\x00-\x1f\x7f]')


def send_file(
    req: falcon.Request,
    resp: falcon.Response,
    source: str | os.PathLike[str] | IO[bytes],
    *,
    media_type: str = "",
    etag: str = "",
    last_modified: datetime | None = None,
    download_as: str = "",
) -> None:
    """Answer a GET with a file, or with the range of it that is asked for. Call this last in a responder.

    It answers 304 or 412 where the request's conditions say so, 206 to one range, 416 to one beyond the end, and with
    the whole file to several ranges. 64 KiB are read at a time, as the client takes them.

    Args:
        req: The request.
        resp: The response.
        source: A path, or a binary file that can seek, which is closed once it is sent. Replace a file by renaming
            another one over it: the one that is being sent stays whole.
        media_type: What it is. Guessed from a path's ending by default.
        etag: The text of its entity tag. Of a path, by default, made of its size and time.
        last_modified: When it was changed, with a zone. Of a path, by default, its time.
        download_as: The name under which a browser saves it. Empty to show it.

    Raises:
        falcon.HTTPNotFound: There is no such file.
        falcon.HTTPPreconditionFailed: `If-Match` or `If-Unmodified-Since` fails.
        falcon.HTTPRangeNotSatisfiable: The range begins beyond the end.
    """
    file = _opened(source)
    try:
        if isinstance(source, str | os.PathLike):
            found = os.fstat(file.fileno())
            etag = etag or f"{found.st_mtime_ns:x}-{found.st_size:x}"
            last_modified = last_modified or datetime.fromtimestamp(found.st_mtime, UTC)
            media_type = media_type or mimetypes.guess_type(source)[0] or _OCTETS
        changed = last_modified.astimezone(UTC).replace(microsecond=0) if last_modified is not None else None
        resp.content_type = media_type or _OCTETS
        resp.set_header("Accept-Ranges", "bytes")
        if etag:
            resp.etag = etag
        if changed is not None:
            resp.last_modified = changed
        if download_as:
            resp.downloadable_as = _unfit.sub("_", download_as)
        if _is_current(req, etag, changed):
            resp.status = falcon.HTTP_304
            file.close()
            return
        size = file.seek(0, os.SEEK_END)
        start, end = _asked(req, size, etag, changed)
        if end - start < size:
            resp.status = falcon.HTTP_206
            resp.content_range = (start, end - 1, size)
        file.seek(start)
        resp.set_stream(file, end - start)
    except BaseException:
        file.close()
        raise


def _opened(source: str | os.PathLike[str] | IO[bytes]) -> IO[bytes]:
    if not isinstance(source, str | os.PathLike):
        return source
    try:
        return Path(source).open("rb")
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
    except ValueError:  # a NUL, or what the file system's encoding doesn't have
        pass
    raise falcon.HTTPNotFound(description="There is no such file.")


def _is_current(req: falcon.Request, etag: str, changed: datetime | None) -> bool:
    """Return whether the client has the file already (RFC 9110, 13.2.2).

    Raises:
        falcon.HTTPPreconditionFailed: It wants another one.
    """
    wanted, known = req.if_match, req.if_none_match
    not_after, since = _date(req, "If-Unmodified-Since"), _date(req, "If-Modified-Since")
    if wanted is not None:
        failed = not _has(wanted, etag, strong=True)
    else:
        failed = changed is not None and not_after is not None and changed > not_after
    if failed:
        raise falcon.HTTPPreconditionFailed(description="The file is another one than the request's condition names.")
    if known is not None:
        return _has(known, etag, strong=False)
    return changed is not None and since is not None and changed <= since


def _asked(req: falcon.Request, size: int, etag: str, changed: datetime | None) -> tuple[int, int]:
    """Return where the part begins and ends that is asked for; the whole where that is no single range of bytes.

    Raises:
        falcon.HTTPRangeNotSatisfiable: It begins beyond the end.
    """
    found = _range(req.get_header("Range") or "")
    if found is None or not _may_resume(req, etag, changed):
        return 0, size
    first, last, suffix = found.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last is not None else size
        if last is not None and int(last) < start:
            return 0, size
    if start >= size:
        raise falcon.HTTPRangeNotSatisfiable(size, description=f"The file has {size} bytes.")
    return start, end


def _may_resume(req: falcon.Request, etag: str, changed: datetime | None) -> bool:
    """Return whether a part of the file fits what the client has of it (RFC 9110, 13.1.5)."""
    condition = req.get_header("If-Range")
    if condition is None:
        return True
    if '"' in condition:
        return bool(etag) and condition.strip() == f'"{etag}"'
    return changed is not None and _date(req, "If-Range") == changed


def _has(tags: Iterable[falcon.ETag | str], etag: str, *, strong: bool) -> bool:
    return any(
        tag == "*" or (tag == etag != "" and not (strong and isinstance(tag, falcon.ETag) and tag.is_weak))
        for tag in tags
    )


def _date(req: falcon.Request, name: str) -> datetime | None:
    """Return a header's date. None for one that is malformed, which counts as absent."""
    try:
        return req.get_header_as_datetime(name, obs_date=True)
    except falcon.HTTPInvalidHeader:
        return None

"""Files as responses: conditional requests and ranges (RFC 9110, 8.8, 13 and 14)."""

from __future__ import annotations

import errno
import mimetypes
import os
import re
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import falcon

from plughost.http._preconditions import check_preconditions

# The system's errors for a path that names no file.
_NO_FILE: Final = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO}
_range: Final = re.compile(r"bytes=(?:([0-9]{1,19})-([0-9]{1,19})?|-([0-9]{1,19}))", re.IGNORECASE).fullmatch
_unsafe: Final = re.compile(r'["\\\x00-\x1f\x7f]')


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
    """Respond to a GET with a file, or with the requested range of it. Call this last in a responder.

    The response is 304 or 412 if the request's conditions say so, 206 for one range, 416 for a range beyond the end,
    and the whole file for several ranges. 64 KiB are read at a time, as fast as the client takes them.

    Args:
        req: The request.
        resp: The response.
        source: A path, or a seekable binary file, which is closed once it is sent. Replace a file by renaming
            another one over it: responses in progress then send the old file whole.
        media_type: The media type. For a path, guessed from its suffix by default.
        etag: The entity tag without quotes. For a path, made from its size and modification time by default.
        last_modified: When it was modified, with a time zone. For a path, its modification time by default.
        download_as: The name under which a browser saves it. Empty to display it.

    Raises:
        falcon.HTTPNotFound: There is no such file.
        falcon.HTTPPreconditionFailed: `If-Match` or `If-Unmodified-Since` fails.
        falcon.HTTPRangeNotSatisfiable: The range begins beyond the end.
    """
    file = _open(source)
    with ExitStack() as unless_sent:
        unless_sent.callback(file.close)
        if isinstance(source, str | os.PathLike):
            status = os.fstat(file.fileno())
            etag = etag or f"{status.st_mtime_ns:x}-{status.st_size:x}"
            last_modified = last_modified or datetime.fromtimestamp(status.st_mtime, UTC)
            media_type = media_type or mimetypes.guess_type(source)[0] or ""
        modified = last_modified.astimezone(UTC).replace(microsecond=0) if last_modified is not None else None
        if etag:
            resp.etag = etag
        if modified is not None:
            resp.last_modified = modified
        if _is_current(req, etag, modified):
            resp.status = falcon.HTTP_304  # without a Content-Type (RFC 9110 15.4.5)
            return
        resp.content_type = media_type or "application/octet-stream"
        resp.set_header("Accept-Ranges", "bytes")
        if download_as:
            resp.downloadable_as = _unsafe.sub("_", download_as)
        size = file.seek(0, os.SEEK_END)
        start, end = _requested_range(req, size, etag, modified)
        if end - start < size:
            resp.status = falcon.HTTP_206
            resp.content_range = (start, end - 1, size)
        file.seek(start)
        resp.set_stream(file, end - start)
        unless_sent.pop_all()


def _open(source: str | os.PathLike[str] | IO[bytes]) -> IO[bytes]:
    if not isinstance(source, str | os.PathLike):
        return source
    try:
        return Path(source).open("rb")
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
    except ValueError:  # a NUL, or a character that the file system's encoding lacks
        pass
    raise falcon.HTTPNotFound(description="There is no such file.")


def _is_current(req: falcon.Request, etag: str, modified: datetime | None) -> bool:
    """Return whether the client already has the current file (RFC 9110, 13.2.2). Raise if a condition fails."""
    since, until = _date(req, "If-Modified-Since"), _date(req, "If-Unmodified-Since")
    if req.get_header("If-Match") is None and modified is not None and until is not None and modified > until:
        raise falcon.HTTPPreconditionFailed(description="If-Unmodified-Since: the file was modified after it.")
    if check_preconditions(req, etag):
        return True
    return req.if_none_match is None and modified is not None and since is not None and modified <= since


def _requested_range(req: falcon.Request, size: int, etag: str, modified: datetime | None) -> tuple[int, int]:
    """Return start and end of the requested range; of the whole file unless it is one valid range of bytes."""
    match = _range(req.get_header("Range") or "") if req.method == "GET" else None  # RFC 9110, 14.2
    if match is None or not _if_range_holds(req, etag, modified):
        return 0, size
    first, last, suffix = match.groups()
    if suffix is not None:
        start, end = max(0, size - int(suffix)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last is not None else size
        if last is not None and int(last) < start:
            return 0, size
    if start >= size:
        raise falcon.HTTPRangeNotSatisfiable(size, description=f"The file has {size} bytes.")
    return start, end


def _if_range_holds(req: falcon.Request, etag: str, modified: datetime | None) -> bool:
    """Return whether the client's part is of the current file, by `If-Range` (RFC 9110, 13.1.5)."""
    condition = req.get_header("If-Range")
    if condition is None:
        return True
    if '"' in condition:
        return bool(etag) and condition.strip() == f'"{etag}"'
    return modified is not None and _date(req, "If-Range") == modified


def _date(req: falcon.Request, name: str) -> datetime | None:
    """Return a header's date. None if it is malformed, which counts as absent."""
    try:
        return req.get_header_as_datetime(name, obs_date=True)
    except falcon.HTTPInvalidHeader:
        return None

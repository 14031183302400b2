"""Minor versions of a route group, chosen by the header `API-Version` (SPEC Versioning 2, CONTRACT 2)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import falcon

if TYPE_CHECKING:
    from collections.abc import Sequence

_version = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)


class Versions:
    """The minor versions that a route group speaks.

    Attributes:
        spoken: The versions, oldest first.
        newest: The one that serves a request which asks for none.
    """

    def __init__(self, spoken: Sequence[str]) -> None:
        """Check and order the versions.

        Raises:
            ValueError: There is none, or one is not of the form `major.minor`.
        """
        if not spoken:
            raise ValueError("a route group with minor versions needs at least one")
        parsed = []
        for version in spoken:
            match = _version.fullmatch(version)
            if match is None:
                raise ValueError(f"{version!r} is not a minor version: write it as major.minor, such as '1.0'")
            parsed.append((int(match[1]), int(match[2])))
        parsed.sort()
        self.spoken: tuple[str, ...] = tuple(f"{major}.{minor}" for major, minor in parsed)
        self.newest: str = self.spoken[-1]
        self._chosen = {name: name for name in self.spoken} | {
            str(major): f"{major}.{minor}" for major, minor in parsed
        }

    def choose(self, asked: str | None) -> str:
        """Return the version that serves a request.

        Raises:
            falcon.HTTPBadRequest: The version is malformed, or not spoken here. The detail names those that are.
        """
        if asked is None:
            return self.newest
        try:
            return self._chosen[asked.strip()]
        except KeyError:
            raise falcon.HTTPBadRequest(
                title="Unsupported API Version",
                description=f"API-Version: this resource speaks {', '.join(self.spoken)}.",
            ) from None

"""One-time links that open the console, the sessions that they start, and CSRF tokens.

Everything is signed with a key that the host makes at start and keeps in memory, so a restart invalidates it all.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Final

from itsdangerous import BadSignature, URLSafeTimedSerializer

if TYPE_CHECKING:
    from plughost_dev_console.settings import Settings

_MAX_OPEN: Final = 20
"""Maximum number of open links, and of sessions; new ones replace the oldest."""


class Gate:
    """Issues and verifies links, sessions and CSRF tokens."""

    def __init__(self, key: bytes, links: dict[str, bool], sessions: dict[str, bool], settings: Settings) -> None:
        """Take the unused links and the open sessions, which the host keeps while it runs."""
        self._open_links = links
        self._open_sessions = sessions
        self._settings = settings
        self._links, self._sessions, self._tokens = (
            URLSafeTimedSerializer(key, salt=salt, signer_kwargs={"digest_method": hashlib.sha256})
            for salt in ("link", "session", "csrf")
        )

    def new_link(self) -> str:
        """Return the token of a new link; it opens the console once."""
        return self._links.dumps(self._remember(self._open_links))

    def is_open(self, link: str) -> bool:
        """Return whether a link would start a session."""
        return _loaded(self._links, link, self._settings.link_lifetime) in self._open_links

    def enter(self, link: str) -> str | None:
        """Use up a link. Return the cookie of a new session, or None if the link is forged, expired or used."""
        name = _loaded(self._links, link, self._settings.link_lifetime)
        if name is None or not self._open_links.pop(name, False):  # atomic: of two concurrent requests, one succeeds
            return None
        return self._sessions.dumps(self._remember(self._open_sessions))

    def session(self, cookie: str | None) -> str | None:
        """Return the session of a cookie, or None."""
        name = _loaded(self._sessions, cookie, self._settings.session_lifetime)
        return name if name in self._open_sessions else None

    def leave(self, session: str) -> None:
        """End a session."""
        self._open_sessions.pop(session, None)

    def token(self, session: str) -> str:
        """Return a CSRF token for the forms of a session."""
        return self._tokens.dumps(session)

    def is_valid_token(self, token: str | None, session: str) -> bool:
        """Return whether a CSRF token belongs to a session."""
        found = _loaded(self._tokens, token, self._settings.session_lifetime)
        return found is not None and secrets.compare_digest(found, session)

    def _remember(self, names: dict[str, bool]) -> str:
        name = secrets.token_urlsafe(16)
        names[name] = True
        for old in list(names)[:-_MAX_OPEN]:
            names.pop(old, None)
        return name


def _loaded(serializer: URLSafeTimedSerializer, signed: str | None, lifetime: int) -> str | None:
    try:
        value: Any = serializer.loads(signed or "", max_age=lifetime)
    except BadSignature:  # SignatureExpired is one, too
        return None
    return value if isinstance(value, str) else None

"""The gate: links that open the console once, sessions that follow from them, and tokens that forms carry.

Everything is signed with a key that is made when the host starts and never leaves the process: whatever was signed
before is void after a restart.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Final

from itsdangerous import BadSignature, URLSafeTimedSerializer

if TYPE_CHECKING:
    from plughost_dev_console.settings import Settings

_MOST: Final = 20
"""Links and sessions that are good at once; the oldest make room for new ones."""


class Gate:
    """Hands out links, sessions and tokens, and knows its own again."""

    def __init__(self, key: bytes, links: dict[str, bool], sessions: dict[str, bool], settings: Settings) -> None:
        """Guard with what is remembered for as long as the host runs.

        Args:
            key: The key that all is signed with.
            links: Links that were not used yet.
            sessions: Sessions that were not left yet.
            settings: How long they are good.
        """
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
        """Tell whether a link would begin a session."""
        return _loaded(self._links, link, self._settings.link_lifetime) in self._open_links

    def enter(self, link: str) -> str | None:
        """Use up a link.

        Args:
            link: Its token.

        Returns:
            The cookie of a new session; None where the link is forged, too old, or was used before.
        """
        name = _loaded(self._links, link, self._settings.link_lifetime)
        if name is None or not self._open_links.pop(name, False):  # in one step: of two at once, one gets in
            return None
        return self._sessions.dumps(self._remember(self._open_sessions))

    def session(self, cookie: str | None) -> str | None:
        """Return the session that a cookie stands for; None where it stands for none."""
        name = _loaded(self._sessions, cookie, self._settings.session_lifetime)
        return name if name in self._open_sessions else None

    def leave(self, session: str) -> None:
        """End a session."""
        self._open_sessions.pop(session, None)

    def token(self, session: str) -> str:
        """Return a token that shows that a form came from a page of this session."""
        return self._tokens.dumps(session)

    def recognises(self, token: str | None, session: str) -> bool:
        """Tell whether a token is one of a session."""
        found = _loaded(self._tokens, token, self._settings.session_lifetime)
        return found is not None and secrets.compare_digest(found, session)

    def _remember(self, names: dict[str, bool]) -> str:
        name = secrets.token_urlsafe(16)
        names[name] = True
        for old in list(names)[:-_MOST]:
            names.pop(old, None)
        return name


def _loaded(serializer: URLSafeTimedSerializer, signed: str | None, lifetime: int) -> str | None:
    try:
        value: Any = serializer.loads(signed or "", max_age=lifetime)
    except BadSignature:  # SignatureExpired is one, too
        return None
    return value if isinstance(value, str) else None

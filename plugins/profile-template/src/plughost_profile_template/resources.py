"""The resource `/users/profile`, an ordinary Falcon resource, and what the API description says about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plughost import Operation, Response
from plughost.http import read_body
from plughost_profile_template.envelope import Error, Success, success
from plughost_profile_template.models import VIEWS, ProfileChange, ProfileJSON, ProfileJSON11
from plughost_profile_template.users import fresh_profile, owner_of

if TYPE_CHECKING:
    import falcon

    from plughost import Principal
    from plughost.http import Request
    from plughost_profile_template.store import Profile, Profiles


class UserProfile:
    """The profile of whoever asks."""

    def __init__(self, profiles: Profiles, *, by_user: bool) -> None:
        """Take the profiles, and whether each user has one; the host has let in only those who may use them."""
        self._profiles = profiles
        self._by_user = by_user

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Show it."""
        user = self._user(req)
        profile = self._profiles.get(owner_of(user), fresh_profile(user))
        self._answer(req, resp, profile)

    def on_put(self, req: Request, resp: falcon.Response) -> None:
        """Change it."""
        user = self._user(req)
        change = read_body(req, ProfileChange)
        profile = self._profiles.change(owner_of(user), fresh_profile(user), change.values())
        self._answer(req, resp, profile, "Profile updated successfully.")

    def _user(self, req: Request) -> Principal | None:
        return req.principal if self._by_user else None

    def _answer(self, req: Request, resp: falcon.Response, profile: Profile, message: str | None = None) -> None:
        assert req.api_version is not None, "the host chooses one, since the route group has versions"
        view = VIEWS[req.api_version]
        resp.media = success(view.model_validate(profile, from_attributes=True), message=message)
        resp.set_header("Cache-Control", "private, no-cache")


class ProfileEnvelope(Success[ProfileJSON11 | ProfileJSON]):
    """A profile, in the version that was asked for."""


_LIMITS: Final = {
    "RateLimit": "What is left of the limit, and the seconds until its window ends.",
    "RateLimit-Policy": "The limit: its quota, and the seconds of its window.",
    "RateLimit-Limit": "Requests that a client may make in a window.",
    "RateLimit-Remaining": "How many of them are left.",
    "RateLimit-Reset": "Seconds until the window ends.",
}
_TOO_MANY: Final = Response(
    description="The client asked too often.",
    model=Error,
    headers={**_LIMITS, "Retry-After": "Seconds to wait."},
)
_UNAUTHORIZED: Final = Response(
    description="There is no token, or a bad one.", model=Error, headers={"WWW-Authenticate": "How to come back."}
)
_FORBIDDEN: Final = Response(description="The token's roles don't let it in.", model=Error)


def operations(security: tuple[str, ...], roles: tuple[str, ...]) -> dict[str, Operation]:
    """Return the operations by method, given who is let in."""
    refusals = {429: _TOO_MANY} | ({401: _UNAUTHORIZED, 403: _FORBIDDEN} if security else {})
    return {
        "GET": Operation(
            id="getProfile",
            summary="Show the user's profile",
            description="The profile of the user that the token names, or the one that all share.",
            responses={
                200: Response(description="The profile.", model=ProfileEnvelope, headers=_LIMITS),
                **refusals,
            },
            security=security,
            roles=roles,
        ),
        "PUT": Operation(
            id="updateProfile",
            summary="Change the user's profile",
            description="Fields that are absent stay as they are.",
            request=ProfileChange,
            responses={
                200: Response(description="The profile as it is now.", model=ProfileEnvelope, headers=_LIMITS),
                400: Response(description="The body is no JSON.", model=Error),
                422: Response(description="Fields are invalid; all of them are named.", model=Error),
                **refusals,
            },
            security=security,
            roles=roles,
            examples={
                "some fields": {"displayName": "Alex", "heightCm": 178.5},
                "all fields": {
                    "displayName": "Alex",
                    "heightCm": 178.5,
                    "weightKg": 72,
                    "fitnessLevel": "ADVANCED",
                    "gender": "OTHER",
                },
            },
        ),
    }

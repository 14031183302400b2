"""The Falcon resource `/users/profile`, and its operations for the API description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plughost import Operation, Response
from plughost.http import read_body
from plughost_profile_template.envelope import Error, Success, success
from plughost_profile_template.models import VIEWS, ProfileChange, ProfileJSON, ProfileJSON11
from plughost_profile_template.users import new_profile, owner_key

if TYPE_CHECKING:
    import falcon

    from plughost import Principal
    from plughost.http import Request
    from plughost_profile_template.store import Profile, Profiles


class UserProfile:
    """The profile of the requesting user."""

    def __init__(self, profiles: Profiles, *, by_user: bool) -> None:
        """Take the profiles, and whether each user has one. The host has already checked access."""
        self._profiles = profiles
        self._by_user = by_user

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """Return the profile."""
        user = self._user(req)
        profile = self._profiles.get(owner_key(user), new_profile(user))
        self._send(req, resp, profile)

    def on_put(self, req: Request, resp: falcon.Response) -> None:
        """Change the profile."""
        user = self._user(req)
        change = read_body(req, ProfileChange)
        profile = self._profiles.change(owner_key(user), new_profile(user), change.values())
        self._send(req, resp, profile, "Profile updated successfully.")

    def _user(self, req: Request) -> Principal | None:
        return req.principal if self._by_user else None

    def _send(self, req: Request, resp: falcon.Response, profile: Profile, message: str | None = None) -> None:
        assert req.api_version is not None, "the host chooses one, since the route group has versions"
        view = VIEWS[req.api_version]
        resp.media = success(view.model_validate(profile, from_attributes=True), message=message)
        resp.set_header("Cache-Control", "private, no-cache")


class ProfileEnvelope(Success[ProfileJSON11 | ProfileJSON]):
    """A profile in the requested version."""


_LIMITS: Final = {
    "RateLimit": "Remaining requests, and seconds until the window ends.",
    "RateLimit-Policy": "The quota, and the seconds of its window.",
    "RateLimit-Limit": "Allowed requests in a window.",
    "RateLimit-Remaining": "Remaining requests in the window.",
    "RateLimit-Reset": "Seconds until the window ends.",
}
_TOO_MANY: Final = Response(
    description="The client sent too many requests.",
    model=Error,
    headers={**_LIMITS, "Retry-After": "Seconds to wait."},
)
_UNAUTHORIZED: Final = Response(
    description="The token is missing or invalid.",
    model=Error,
    headers={"WWW-Authenticate": "The required authentication scheme."},
)
_FORBIDDEN: Final = Response(description="The token's roles don't allow access.", model=Error)


def operations(security: tuple[str, ...], roles: tuple[str, ...]) -> dict[str, Operation]:
    """Return the operations by method, with the security schemes and roles that they require."""
    refusals = {429: _TOO_MANY} | ({401: _UNAUTHORIZED, 403: _FORBIDDEN} if security else {})
    return {
        "GET": Operation(
            id="getProfile",
            summary="Show the user's profile",
            description="The profile of the token's user, or the profile that all users share.",
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
            description="Absent fields stay unchanged.",
            request=ProfileChange,
            responses={
                200: Response(description="The changed profile.", model=ProfileEnvelope, headers=_LIMITS),
                400: Response(description="The body is not JSON.", model=Error),
                422: Response(description="Fields are invalid; `errors` names each.", model=Error),
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

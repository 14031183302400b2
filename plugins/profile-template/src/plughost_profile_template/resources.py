"""The Falcon resource `/users/profile`, and its operations for the API description."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost import Operation, Response
from plughost.http import read_body
from plughost_profile_template.envelope import Success, success
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
        owner = owner_key(user)
        profile = self._profiles.get(owner) or self._profiles.change(owner, new_profile(user), {})
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
        # By name alone: to look for each alias among the attributes first takes three times as long.
        view = VIEWS[req.api_version].model_validate(profile, from_attributes=True, by_alias=False, by_name=True)
        resp.media = success(view, message=message)
        resp.set_header("Cache-Control", "private, no-cache")


class ProfileEnvelope(Success[ProfileJSON11 | ProfileJSON]):
    """A profile in the requested version."""


def operations(security: tuple[str, ...], roles: tuple[str, ...]) -> dict[str, Operation]:
    """Return the operations by method, with the security schemes and roles that they require.

    The host adds its own errors to the API description, such as 401 and 429, and the headers of the rate limit.
    """
    return {
        "GET": Operation(
            id="getProfile",
            summary="Show the user's profile",
            description="The profile of the token's user, or the profile that all users share.",
            responses={200: Response(description="The profile.", model=ProfileEnvelope)},
            security=security,
            roles=roles,
        ),
        "PUT": Operation(
            id="updateProfile",
            summary="Change the user's profile",
            description="Absent fields stay unchanged.",
            request=ProfileChange,
            responses={
                200: Response(description="The changed profile.", model=ProfileEnvelope),
                422: Response(description="Fields are invalid; `errors` names each."),
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

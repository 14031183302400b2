"""Access control: the operations declare who may use the service, and the host enforces it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost import PluginError

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost_profile_template.settings import Settings


def security(context: PluginContext[Settings]) -> tuple[str, ...]:
    """Return the security schemes of the operations; none if all users share one profile.

    Raises:
        PluginError: The settings require users, but no installed plugin authenticates them. The host marks this
            plugin as failed, shows both sentences, and serves the others.
    """
    if context.settings.auth == "none":
        return ()
    if context.authenticator is None:
        raise PluginError(
            'the setting auth is "bearer", and no plugin that serves here is an authenticator',
            'Install one, such as plughost-library-auth (plughost install library-auth), or set auth = "none".',
        )
    return ("bearer",)

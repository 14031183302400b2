"""Who may use the service; the host sees to it, since the operations declare it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plughost import PluginError

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost_profile_template.settings import Settings


def security(context: PluginContext[Settings]) -> tuple[str, ...]:
    """Return the security schemes of the operations; none where all share one profile.

    Raises:
        PluginError: The settings ask for users, and nothing installed can tell who is one. The host then marks this
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

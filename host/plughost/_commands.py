"""The table of all commands."""

from __future__ import annotations

from typing import Final

SECTIONS: Final = {
    "Serve": {
        "serve": ("serving:serve", "Serve every installed plugin"),
        "status": ("controlling:status", "Show what the running host does"),
        "reload": ("controlling:reload", "Take up what was installed, removed or set since"),
        "restart": ("controlling:restart", "Replace the running process, and lose no request"),
        "drain": ("controlling:drain", "Take the running host out of its load balancer"),
    },
    "Look": {
        "plugins": ("showing:plugins", "List the plugins, and why one does not serve"),
        "routes": ("showing:routes", "List what is mounted where"),
        "settings": ("showing:settings", "Show every setting in force, and where it comes from"),
        "check": ("serving:check", "Do everything but serve, and say what is wrong"),
        "doctor": ("doctor:doctor", "Look at the machine and the setup, and advise"),
    },
    "Choose plugins": {
        "install": ("packages", "Install plugins, and serve them"),
        "uninstall": ("packages", "Uninstall plugins, and serve the rest"),
        "enable": ("switching:enable", "Serve plugins again that were disabled"),
        "disable": ("switching:disable", "Skip plugins, and keep their data"),
        "lock": ("packages", "Write the exact set that is installed, with hashes"),
        "bundle": ("packages", "Make a folder that installs without a network"),
    },
    "Write plugins": {
        "new": ("scaffold", "Write a plugin to begin with"),
        "migrate": ("scaffold", "Number a store's migrations, and try them"),
    },
    "Set up and look after": {
        "init": ("showing:init", "Write a commented settings file"),
        "cert": ("cert:cert", "Make, show and export the TLS certificate"),
        "stores": ("stores:stores_command", "List, check, back up and restore stores"),
        "purge": ("stores:purge_command", "Drop all that a plugin keeps"),
        "completion": ("completing:completion", "Complete commands and names in your shell"),
    },
}
"""Every command in the order in which people need them: where in this package it is, and what `--help` says of it.

One that a plugin lends has the plugin's name in place of that: `plughost install` is `plughost packages install`.
"""

_PLACES: Final = {name: place for told in SECTIONS.values() for name, (place, _) in told.items()}
COMMANDS: Final = {name: place for name, place in _PLACES.items() if ":" in place}
LENT: Final = {name: plugin for name, plugin in _PLACES.items() if name not in COMMANDS}
RESERVED: Final = frozenset({*_PLACES, "console", "help", "host", "stop", "upgrade", "version"})
"""Commands of the host, now or likely, which no plugin may be called like: its own commands stand beside them."""

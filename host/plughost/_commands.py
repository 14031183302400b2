"""The table of all commands."""

from __future__ import annotations

from typing import Final

SECTIONS: Final = {
    "Serve": {
        "serve": ("serving:serve", "Serve every installed plugin"),
        "status": ("controlling:status", "Show the state of the running host"),
        "reload": ("controlling:reload", "Apply changed plugins and settings to the running host"),
        "restart": ("controlling:restart", "Replace the running process without losing a request"),
        "drain": ("controlling:drain", "Take the running host out of load balancing"),
    },
    "Inspect": {
        "plugins": ("inspection:plugins", "List installed plugins, with their states and errors"),
        "routes": ("inspection:routes", "List all routes"),
        "settings": ("inspection:settings", "Show the effective settings, and where each is set"),
        "check": ("serving:check", "Check plugins and settings without serving"),
        "doctor": ("doctor:doctor", "Check this system for potential problems"),
    },
    "Manage plugins": {
        "install": ("packages", "Install plugins and serve them"),
        "uninstall": ("packages", "Uninstall plugins"),
        "enable": ("switching:enable", "Enable disabled plugins"),
        "disable": ("switching:disable", "Disable plugins and keep their data"),
        "lock": ("packages", "Write the installed versions and hashes to a lock file"),
        "bundle": ("packages", "Make a folder to install from without a network"),
    },
    "Develop plugins": {
        "new": ("scaffold", "Create a plugin"),
        "migrate": ("scaffold", "Create and test a store's migrations"),
    },
    "Set up and maintain": {
        "init": ("inspection:init", "Create a commented settings file"),
        "cert": ("cert:cert", "Create, show and export the TLS certificate"),
        "stores": ("stores:stores_command", "List, check, back up and restore stores"),
        "purge": ("stores:purge_command", "Drop all data of a plugin"),
        "completion": ("completing:completion", "Print the completion script for your shell"),
    },
}
"""Every command by section of the help: its target, which is `MODULE:NAME` in `_cli`, and its line in `--help`.

The target of an alias is a plugin: `plughost install` is short for `plughost packages install`.
"""

_TARGETS: Final = {name: target for commands in SECTIONS.values() for name, (target, _) in commands.items()}
COMMANDS: Final = {name: target for name, target in _TARGETS.items() if ":" in target}
ALIASES: Final = {name: plugin for name, plugin in _TARGETS.items() if name not in COMMANDS}
RESERVED: Final = frozenset({*_TARGETS, "console", "help", "host", "stop", "upgrade", "version"})
"""Names of present or likely commands of the host. No plugin may have one, since its name is a command, too."""

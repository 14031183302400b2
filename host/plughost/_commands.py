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
        "plugins": ("inspection:plugins", "List the plugins, and why one does not serve"),
        "routes": ("inspection:routes", "List what is mounted where"),
        "settings": ("inspection:settings", "Show every setting in force, and where it comes from"),
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
        "init": ("inspection:init", "Write a commented settings file"),
        "cert": ("cert:cert", "Make, show and export the TLS certificate"),
        "stores": ("stores:stores_command", "List, check, back up and restore stores"),
        "purge": ("stores:purge_command", "Drop all that a plugin keeps"),
        "completion": ("completing:completion", "Complete commands and names in your shell"),
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

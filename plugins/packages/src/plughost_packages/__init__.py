"""Package management for operators: install, uninstall, lock and bundle what a plughost serves."""

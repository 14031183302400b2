"""What operators do to the set of plugins: install, uninstall, switch on and off, lock and bundle."""

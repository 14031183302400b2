"""JSON for the host and all plugins: exact numbers, all errors at once, CONTRACT 2's texts."""

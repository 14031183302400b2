"""JSON, the same everywhere: exact numbers, all errors at once, CONTRACT 2's texts."""

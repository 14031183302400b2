"""Product catalog v3 of plughost: list, get, create and delete, persistent."""

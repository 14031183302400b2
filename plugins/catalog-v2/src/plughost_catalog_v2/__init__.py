"""Product catalog v2 of plughost: list, get, create and delete, in memory."""

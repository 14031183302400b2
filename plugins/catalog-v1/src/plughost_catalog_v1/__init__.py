"""Product catalog v1 of plughost: list and create, in memory."""

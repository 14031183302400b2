"""Product catalog v4 of plughost: persistent, wire shapes apart from the stored record."""

"""Bookmarks for a team: an example of a plugin for plughost."""

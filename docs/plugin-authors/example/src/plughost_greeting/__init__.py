"""Greets people by name: a small plugin for plughost."""

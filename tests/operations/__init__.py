"""Operators' commands, on real environments."""

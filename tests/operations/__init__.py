"""Operators' commands in real environments."""

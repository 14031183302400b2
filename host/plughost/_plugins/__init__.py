"""Plugins: found, loaded, registered, validated, compared, and reused or imported afresh at a reload."""

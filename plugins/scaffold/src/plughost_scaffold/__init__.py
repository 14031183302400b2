"""For authors of plughost plugins: write a new plugin, number its migrations and try them."""

"""Settings: models, sources and errors."""

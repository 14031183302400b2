"""The documentation of plughost as a site, served by the host itself."""

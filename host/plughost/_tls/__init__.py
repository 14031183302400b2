"""TLS: certificates and keys."""

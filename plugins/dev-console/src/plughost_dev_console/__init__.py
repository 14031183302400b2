"""The development console of a host."""

"""The development console in a real browser."""

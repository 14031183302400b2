"""Tests of the host's middleware: rate limits, CORS, compression, security headers."""

"""Tests of what the host offers around requests: rate limits, CORS, compression, security headers."""

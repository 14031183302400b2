"""Traces of a plughost for OpenTelemetry."""

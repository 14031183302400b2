"""The tests that every plugin must pass (CONTRACT 2)."""

from __future__ import annotations

from plughost.testing import conformance

TestConformance = conformance("catalog-v2")

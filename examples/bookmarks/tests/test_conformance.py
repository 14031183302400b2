"""The tests that every plugin must pass."""

from __future__ import annotations

from plughost.testing import conformance

TestConformance = conformance("bookmarks")

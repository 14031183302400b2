"""What holds for every plugin."""

from __future__ import annotations

from plughost.testing import conformance

TestConformance = conformance("bookmarks")

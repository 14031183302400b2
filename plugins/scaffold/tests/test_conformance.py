"""What holds for every plugin (CONTRACT 2)."""

from __future__ import annotations

from plughost.testing import conformance

TestConformance = conformance("scaffold")

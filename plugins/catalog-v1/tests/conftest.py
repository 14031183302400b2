"""Make pytest explain the failed assertions of the tests for every catalog."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("plughost_catalog_core.testing")

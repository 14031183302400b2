"""Where the tests of every catalog show what they compared."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("plughost_catalog_core.testing")

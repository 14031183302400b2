"""The description as YAML, the same for readers of both versions, and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plughost_openapi.rendering import render

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), values))
def test_a_document_is_read_back_unchanged(value: dict[str, Any]) -> None:
    """Any text of a plugin survives, in either format."""
    assert yaml.safe_load(render(value, "yaml")) == value
    assert json.loads(render(value, "json")) == value


@pytest.mark.parametrize(
    "text", ["1.0", "1", "1e3", "0o17", "0x1f", "yes", "no", "on", "null", "~", "2026-11-21", ".5"]
)
def test_ambiguous_strings_are_quoted(text: str) -> None:
    """YAML 1.1 and 1.2 read different strings as numbers, booleans and dates; all of them are quoted."""
    assert render({"a": text}, "yaml") in (f"a: '{text}'\n", f'a: "{text}"\n')


def test_multiline_texts_are_readable() -> None:
    """They have several lines, and repeated values are written out."""
    shared = {"text": "one\ntwo\n"}
    assert (
        render({"a": shared, "b": shared}, "yaml")
        == "a:\n  text: |\n    one\n    two\nb:\n  text: |\n    one\n    two\n"
    )

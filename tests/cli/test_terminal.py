"""What commands print on a terminal: tables that fit, and text that is wrapped at words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Line


@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("command", ["plugins", "routes"])
def test_a_table_fits_the_terminal(line: Line, command: str, width: int) -> None:
    """At either width, each plugin has one row, no word is broken, and no row ends in spaces."""
    line.install("good")
    line.install("a-plugin-of-a-long-name")
    shown = line.on_terminal(width, command)
    assert not [row for row in shown if row.endswith(" ") or len(row) > width]
    words = {word for row in shown for word in row.split()}
    assert words >= {"good", "a-plugin-of-a-long-name", "main"}
    assert ("routes" in words or "does" in words) == (width == 120)
    if command == "routes" and width < 120:
        assert "Not shown for lack of space: the versions, and a summary of each method" in " ".join(shown)


def test_a_plugins_name_is_whole_where_both_names_have_no_room(line: Line) -> None:
    """The distribution, which is nearly the same, is left out, and a line says so."""
    line.install("acme-warehouse-inventory-03")
    shown = line.on_terminal(80, "plugins")
    assert any(row.startswith("acme-warehouse-inventory-03 ") for row in shown), shown
    assert "Not shown for lack of space: distribution and hooks." in " ".join(shown)


@pytest.mark.parametrize("command", ["plugins", "routes"])
def test_a_long_name_is_folded_and_not_cut_off(line: Line, command: str) -> None:
    """A name wider than its column continues in the next row, and words beside it stay whole."""
    line.install("q" * 60)
    shown = line.on_terminal(80, command)
    assert sum(row.count("q") for row in shown) == {"plugins": 1, "routes": 2}[command] * 60, shown
    assert "main" in " ".join(shown).split()


def test_the_answer_to_why_is_wrapped_at_words(line: Line) -> None:
    """No word is broken on a terminal."""
    line.install("a-plugin-of-a-long-name")
    shown = line.on_terminal(80, "plugins", "--why", "a-plugin-of-a-long-name")
    assert {"a-plugin-of-a-long-name", "serves"} <= {word for row in shown for word in row.split()}
    assert max(map(len, shown)) < 80, shown


def test_the_error_of_a_command_is_wrapped_at_words(line: Line) -> None:
    """No word is broken on a terminal."""
    assert line.on_terminal(40, "settings", "nope") == [
        "Error: There is no setting nope;",
        "plughost settings lists all.",
    ]


def test_sentences_are_wrapped_at_words_and_a_fingerprint_at_bytes(line: Line) -> None:
    """On a terminal, a check's words stay whole; a fingerprint has half of its bytes in each of two rows."""
    line.configure('disabled = ["a-plugin-that-nobody-has"]\naddress = "0.0.0.0"')
    line.install("good")
    shown = line.on_terminal(80, "check")
    assert max(map(len, shown)) <= 80, shown
    assert "is to be skipped, and no plugin of this name is installed;" in " ".join(shown)
    line.run("cert", "create")
    assert sum(bool(re.search(r"(\b[0-9A-F]{2}(:|$)){16}$", row)) for row in line.on_terminal(80, "cert", "show")) == 2

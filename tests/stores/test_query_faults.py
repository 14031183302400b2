"""The lint rule for Pony queries, applied to the sources of every plugin here."""

from __future__ import annotations

from pathlib import Path

import pytest

from plughost.testing import query_faults

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "query",
    [
        "select(p for p in P if (p.a if x else p.b) == 1)",
        "orm.select(p.a if p.b else 0 for p in P)",
        "P.select(lambda p: lo <= p.price <= hi)",
        "P.select().filter(lambda p: p.a == (1 if x else 2))",
        "count(p for p in P if 0 < p.a < 2)",
    ],
)
def test_queries_that_pony_gets_wrong_are_found_with_their_lines(query: str) -> None:
    """These are ternaries and chained comparisons, in generators and lambdas."""
    assert [fault.line for fault in query_faults(f"from pony import orm\n\n{query}\n")] == [3]


@pytest.mark.parametrize(
    "source",
    [
        "from pony.orm import select\nselect(p for p in P if lo <= p.price and p.price <= hi)",
        "from pony.orm import select\nx = 1 if y else 2\nselect(p for p in P if p.a == x)",
        "from pony.orm import select\nassert 0 < x < 2",
        "max(1 if x else 2 for x in y)",
    ],
    ids=["two comparisons", "decided outside", "no query", "no Pony"],
)
def test_correct_queries_are_accepted(source: str) -> None:
    """Python outside of queries is not checked."""
    assert query_faults(source) == []


def test_no_plugin_has_a_query_that_pony_gets_wrong() -> None:
    """All sources here are checked, including the host's and this suite's own."""
    sources = [path for folder in ("host", "plugins", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert sources
    found = {str(path): query_faults(path.read_text(encoding="utf-8")) for path in sources}
    assert {path: each for path, each in found.items() if each} == {}

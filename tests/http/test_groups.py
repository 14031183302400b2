"""Which route group a path belongs to."""

from __future__ import annotations

from typing import Any

from plughost.http._routing import find_group


class _Prefixes(dict[str, Any]):
    """Groups by prefix, which note the paths that are looked up."""

    def __init__(self, *prefixes: str) -> None:
        super().__init__({each: each for each in prefixes})
        self.looked_up: list[str] = []

    def get(self, path: str, default: Any = None) -> Any:
        self.looked_up.append(path)
        return super().get(path, default)


def test_segments_beyond_the_longest_prefix_are_not_looked_up() -> None:
    """The work for a long path doesn't grow with its segments: a refused target may have thousands."""
    prefixes = _Prefixes("/", "/api", "/api/v1")
    for path, group in (
        ("/api/v1" + "/.." * 20_000, "/api/v1"),
        ("/api/v2" + "/.." * 20_000, "/api"),
        ("/api//" + "x" * 20_000, "/api"),
        ("/api/v1x", "/api"),
        ("/api/v1/", "/api/v1"),
        ("/apix", None),
        ("//" * 20_000, None),
        ("/", "/"),
    ):
        prefixes.looked_up.clear()
        found: Any = find_group(prefixes, path)
        assert found == group
        assert len(prefixes.looked_up) <= 4

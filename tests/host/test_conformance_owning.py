"""The conformance suite detects declarations that belong to another plugin or to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

NEIGHBOUR: Final = """
import pathlib

from plughost import Check, Health, Middleware, Operation, Page, Route, RouteGroup, Store, hookimpl
from pydantic import BaseModel


class Says:
    def on_get(self, req, resp):
        resp.media = "word"


class Wrapper:
    def process_response(self, req, resp, resource, succeeded):
        pass


def store(name, *tables):
    return [Store(name=name, migrations=pathlib.Path(__file__).parent / "migrations", tables=tables)]


def routes(prefix):
    return [RouteGroup(prefix=prefix, routes=(Route("", Says(), {"GET": Operation(summary="Say")}),))]


def checks(*names):
    return [Check(name=name, check=lambda: Health(up=True)) for name in names]


def wrappers(*names):
    return [Middleware(name=name, component=Wrapper()) for name in names]


def pages(*names):
    return [Page(name=name, title="A page", render=str) for name in names]
"""
HOOK: Final = """

@hookimpl
def register_{hook}(context):
    return {made}
"""
SETTINGS: Final = """

class Settings(BaseModel):
    site: str = ""


@hookimpl
def register_settings():
    return Settings
"""
OWNED: Final = "".join(
    HOOK.format(hook=hook, made=made)
    for hook, made in {
        "stores": 'store("words", "words")',
        "routes": 'context.metrics.counter("x_said", "Words.") and routes("/words")',
        "checks": 'checks("words")',
        "middleware": 'wrappers("words")',
        "pages": 'pages("words")',
    }.items()
)
MIGRATION: Final = {"migrations/sqlite/0001_words.sql": "CREATE TABLE words (id INTEGER);"}
PLANTED: Final = {
    "settings": (
        SETTINGS,
        "has a field site, which is the host's: give it another name",
    ),
    "store": (
        HOOK.format(hook="stores", made='store("words", "more")'),
        r"the store words belongs to planted-words \(.*\) already: give it a name of its own",
    ),
    "table": (
        HOOK.format(hook="stores", made='store("more", "words")'),
        r"the table words belongs to planted-words \(.*\) already: give it a name of its own",
    ),
    "table of the host": (
        HOOK.format(hook="stores", made='store("more", "plughost_migrations")'),
        "the table plughost_migrations is the host's: remove it from `tables`",
    ),
    "prefix": (
        HOOK.format(hook="routes", made='routes("/words")'),
        r"the prefix /words on site main belongs to planted-words \(.*\) already: give it",
    ),
    "prefix below": (
        HOOK.format(hook="routes", made='routes("/words/more")'),
        "the prefix /words/more is below /words of planted-words: choose one beside it",
    ),
    "check": (
        HOOK.format(hook="checks", made='checks("words")'),
        r"the health check words belongs to planted-words \(.*\) already: give it",
    ),
    "middleware": (
        HOOK.format(hook="middleware", made='wrappers("words")'),
        r"the middleware words belongs to planted-words \(.*\) already: give it",
    ),
    "page": (HOOK.format(hook="pages", made='pages("more", "more")'), "claims the page .*/more twice: give it a name"),
    "metric": (
        HOOK.format(
            hook="checks",
            made='[context.metrics.counter("more", "Words."), context.metrics.gauge("more_total", "Words.")] and []',
        ),
        "the metric more is shown as planted_words_x_more_total, as more_total of .* is: give it another name",
    ),
    "metric of another": (
        HOOK.format(hook="checks", made='context.metrics.counter("said", "Words.") and []'),
        "the metric said is shown as planted_words_x_said, as x_said of planted-words is: give it another name",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_declaration_that_belongs_to_another_is_found(plant: Callable[..., Any], fault: str) -> None:
    """The failure names each kind of declaration that belongs to the host or another plugin, and says what to do."""
    source, found = PLANTED[fault]
    plant("planted-words", NEIGHBOUR + OWNED, **MIGRATION).test_it_declares_only_what_it_owns()
    with pytest.raises(AssertionError, match=f"planted-words-x declares what it doesn't own: .*{found}"):
        plant("planted-words-x", NEIGHBOUR + source, **MIGRATION).test_it_declares_only_what_it_owns()


def test_taking_a_name_from_its_owner_is_found(plant: Callable[..., Any]) -> None:
    """The host gives a name to the first plugin that claims it, which need not be its owner."""
    plant("planted-words", NEIGHBOUR + OWNED, **MIGRATION)
    suite = plant("planted-a", NEIGHBOUR + HOOK.format(hook="routes", made='routes("/words")'))
    found = r"belongs to planted-a \(.*\) already, so planted-words \(.*\) loses what is its own: choose another name"
    with pytest.raises(AssertionError, match=found):
        suite.test_it_declares_only_what_it_owns()

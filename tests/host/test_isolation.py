"""Isolation: a bad plugin never ends the host, and is always reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import create_model
from tests.host.plugins import TIME_LIMIT, Plugin, Says, Speaker, group_of, raising, reason, serving, with_good_plugin

from plughost import (
    Check,
    Middleware,
    Operation,
    Page,
    Route,
    RouteGroup,
    Store,
    hookimpl,
    write_private,
)
from plughost.testing import plugin_distribution, running_host

BUILD_HOOKS = (
    "register_settings",
    "register_stores",
    "register_authenticator",
    "register_middleware",
    "register_routes",
    "register_observers",
    "register_checks",
    "register_pages",
)


class UnspeakableError(Exception):
    """An exception whose text can't be obtained."""

    def __str__(self) -> str:
        """Fail."""
        raise SystemExit("no text")

    __repr__ = __str__


def hook_of(name: str, act: Callable[[], Any]) -> Plugin:
    """Return a plugin with one hook that calls a function."""
    hooks: dict[str, Callable[..., Any]] = {name: lambda context: act()}
    if name in {"register_settings", "register_commands"}:  # without a context
        hooks = {name: lambda *_: act()}
    return Plugin(**hooks)


ERRORS = [
    ValueError("wrong"),
    SystemExit(0),
    pytest.param(KeyboardInterrupt(), marks=pytest.mark.thorough),
    pytest.param(GeneratorExit(), marks=pytest.mark.thorough),
    pytest.param(BaseException("odd"), marks=pytest.mark.thorough),
    UnspeakableError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_import_that_raises_anything_fails_alone(error: BaseException) -> None:
    """The plugin is reported as failed, whatever its import raises, and another one answers."""
    with running_host(distributions=with_good_plugin(error)) as host, host.client() as client:
        assert client.get("/good").status_code == 200
        assert reason(host, "bad").startswith("failed: import: ")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("hook", BUILD_HOOKS)
def test_a_hook_that_raises_anything_fails_alone(hook: str, error: BaseException) -> None:
    """The plugin is reported as failed, with the hook, whatever the hook raises, and another one answers."""
    with running_host(distributions=with_good_plugin(hook_of(hook, raising(error)))) as host, host.client() as client:
        assert client.get("/good").status_code == 200
        assert reason(host, "bad").startswith(f"failed: {hook}: ")


def test_a_failure_names_the_place_in_the_plugin() -> None:
    """The reason of a failing hook holds the exception, its message, the plugin's file and line, and what to do."""
    for error in (LookupError("no shelf."), SyntaxError("no shelf")):
        bad = hook_of("register_routes", raising(error))
        with running_host(distributions=with_good_plugin(bad)) as host:
            message = reason(host, "bad")
        assert f"{type(error).__name__} at plugins.py:" in message
        assert ": no shelf. The traceback" in message
        assert "disable the plugin" in message


def test_an_exception_without_a_readable_text_is_reported() -> None:
    """The reason has its type, and says why there is no message."""
    with running_host(distributions=with_good_plugin(UnspeakableError())) as host:
        assert "UnspeakableError: its message can't be shown" in reason(host, "bad")


def test_the_failure_names_the_plugins_line_and_not_the_hosts(tmp_path: Path) -> None:
    """If the host raises an exception in a plugin's call, the reason names the line of that call."""
    bad = hook_of("register_routes", lambda: write_private(tmp_path / "missing" / "file", b""))
    with running_host(distributions=with_good_plugin(bad)) as host:
        assert "FileNotFoundError at test_isolation.py:" in reason(host, "bad")


@pytest.mark.parametrize("hook", BUILD_HOOKS)
def test_a_hook_that_hangs_fails_alone(hook: str, hang: threading.Barrier) -> None:
    """A plugin whose hook doesn't return fails after hook_timeout, and another one answers."""
    bad = with_good_plugin(hook_of(hook, hang.wait))
    with running_host(distributions=bad, settings={"hook_timeout": TIME_LIMIT}) as host, host.client() as client:
        assert client.get("/good").status_code == 200
        assert f"{hook}: it did not return within 60 s" in reason(host, "bad")
        assert "hook_timeout" in reason(host, "bad")


def test_the_reason_of_a_hang_names_the_line_that_hangs(hang: threading.Barrier) -> None:
    """The line is in the plugin's own code, whatever library waits there."""

    def register() -> None:
        hang.wait()

    with running_host(
        distributions=with_good_plugin(hook_of("register_routes", register)), settings={"hook_timeout": TIME_LIMIT}
    ) as host:
        line = register.__code__.co_firstlineno + 1
        assert f"it did not return within 60 s, and was at test_isolation.py:{line}." in reason(host, "bad")


def test_a_generator_that_hangs_fails_alone(hang: threading.Barrier) -> None:
    """A hook that yields declarations and hangs between two of them fails like one that never returns."""

    def declare() -> Iterator[RouteGroup]:
        yield group_of(Says("one"))
        hang.wait()

    bad = with_good_plugin(hook_of("register_routes", declare))
    with running_host(distributions=bad, settings={"hook_timeout": TIME_LIMIT}) as host:
        assert "did not return" in reason(host, "bad")


def test_an_import_that_returns_too_late_changes_nothing(hang: threading.Barrier) -> None:
    """A plugin whose import returns after its timeout is not registered."""

    class Late(Speaker):
        def __init__(self) -> None:
            hang.wait()
            super().__init__("late")

    with running_host(distributions=with_good_plugin(Late), settings={"hook_timeout": TIME_LIMIT}) as host:
        before = threading.enumerate()
        late = next(thread for thread in before if thread.name == "bad:import")
        hang.wait(20)
        late.join(10)
        assert host.host.generation is not None
        assert not host.host.generation.registry.manager.has_plugin("bad")


ROUTE = Route("", Says("x"), {"GET": Operation(summary="Get")})
RUBBISH: dict[str, list[Any]] = {
    "register_settings": [dict, 7, "model"],
    "register_stores": [
        7,
        [7],
        [Store(name="x", entities=None, migrations=None, tables=None)],  # type: ignore[arg-type] # it is rubbish
        [Store(name="../x", entities=print, migrations=None, tables=())],  # type: ignore[arg-type] # it is rubbish
    ],
    "register_authenticator": [7, "me"],
    "register_middleware": [
        [object()],
        [Middleware(name="m", component=object(), scope="site")],
        [Middleware(name="m", component=object())],
        [Middleware(name="m", component=Says, scope="planet")],  # type: ignore[arg-type] # it is rubbish
        [Middleware(name=None, component=None, before=None)],  # type: ignore[arg-type] # it is rubbish
    ],
    "register_routes": [
        7,
        "text",
        group_of(Says("x")),
        [None],
        [RouteGroup(prefix=None, routes=None)],  # type: ignore[arg-type] # it is rubbish
        [RouteGroup(prefix="/x", routes=(None,))],  # type: ignore[arg-type] # it is rubbish
        [RouteGroup(prefix="/x", routes=(ROUTE,), site="nowhere")],
        [RouteGroup(prefix="/x", routes=(ROUTE,), errors="text")],  # type: ignore[arg-type] # it is rubbish
        [RouteGroup(prefix="/x", routes=(ROUTE,), versions="1.0")],  # type: ignore[arg-type] # it is rubbish
        [RouteGroup(prefix="/x", routes=(ROUTE,), body_limit="much")],  # type: ignore[arg-type] # it is rubbish
        [RouteGroup(prefix="/x", routes=(Route("", None, {}),))],
        [RouteGroup(prefix="/x", routes=(Route("", Says("x"), None),))],  # type: ignore[arg-type] # it is rubbish
        [RouteGroup(prefix="/x", routes=(Route("", Says("x"), {"GET": None}),))],  # type: ignore[dict-item] # rubbish
        [RouteGroup(prefix="/x", routes=(Route("y", Says("x"), ROUTE.operations),))],
        [RouteGroup(prefix="/x", routes=(Route("/y/", Says("x"), ROUTE.operations),))],
        [RouteGroup(prefix="/x", routes=(Route("/{", Says("x"), ROUTE.operations),))],
        [RouteGroup(prefix="/x", routes=(Route("/{a}/{a}", Says("x"), ROUTE.operations),))],
        [RouteGroup(prefix="/x", routes=(Route("/{a:nothing}", Says("x"), ROUTE.operations),))],
    ],
    "register_checks": [7, [7], [Check(name=None, check=None)]],  # type: ignore[arg-type] # it is rubbish
    "register_pages": [7, [7], [Page(name=None, title=None, render=None)]],  # type: ignore[arg-type] # it is rubbish
}


@pytest.mark.parametrize(
    ("hook", "rubbish"), [(hook, value) for hook, values in RUBBISH.items() for value in values], ids=str
)
def test_a_hook_that_returns_rubbish_fails_alone(hook: str, rubbish: Any) -> None:
    """A plugin whose hook returns an unusable value is reported as failed, and another one answers."""
    with running_host(distributions=with_good_plugin(hook_of(hook, lambda: rubbish))) as host, host.client() as client:
        assert client.get("/good").status_code == 200
        assert reason(host, "bad").startswith("failed: ")


@pytest.mark.parametrize(
    ("hook", "rubbish", "message"),
    [
        ("register_settings", 7, "it returned 7. Return the pydantic model class of the plugin's settings."),
        (
            "register_settings",
            create_model("S", site=(str, "main")),
            (
                "the settings model S has a field site, which is the host's: give it another name. "
                "Report it to the plugin's author, or disable the plugin."
            ),
        ),
        ("register_authenticator", 7, "it returned 7. Return a callable that takes a request."),
        ("register_checks", 7, "it returned 7. Return a list of Check."),
        ("register_checks", [7], "it returned a int. Return a list of Check."),
        ("register_checks", 10**60, f"it returned 1{'0' * 17}...{'0' * 19}. Return a list of Check."),
        ("register_jobs", "x" * 99, "it returned a str. Return a list of Job."),
        ("register_pages", range, "it returned <class 'range'>. Return a list of Page."),
    ],
)
def test_the_failure_says_what_a_hook_must_return(hook: str, rubbish: Any, message: str) -> None:
    """The reason names the returned value, and what to return instead."""
    with running_host(distributions=with_good_plugin(hook_of(hook, lambda: rubbish))) as host:
        assert reason(host, "bad") == f"failed: {hook}: {message}"


@pytest.mark.parametrize("hook", BUILD_HOOKS)
def test_a_forgotten_return_is_reported(hook: str) -> None:
    """A hook that returns None fails its plugin, except `register_authenticator`, which may return None."""
    with running_host(distributions=with_good_plugin(hook_of(hook, lambda: None))) as host:
        expected = "active: None" if hook == "register_authenticator" else f"failed: {hook}: it returned None"
        assert reason(host, "bad").startswith(expected)


class Wrapping:
    """A plugin whose wrapper has no `yield`."""

    @hookimpl(wrapper=True)
    def register_checks(self, context: Any) -> list[Check]:
        """Return nothing."""
        return []


class Optional:
    """A plugin with a hook of a later plughost."""

    @hookimpl(optionalhook=True)
    def register_later(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (
            Plugin(register_router=lambda context: []),
            "has a hook register_router, and plughost has none of this name; did you mean register_routes?",
        ),
        (
            Plugin(on_banana=lambda context: []),
            "has a hook on_banana, and plughost has none of this name; known: draining, ",
        ),
        (
            Plugin(register_routes=lambda context, app: []),
            "takes (context, app). Write it as register_routes(context): arguments are given by name.",
        ),
        (Wrapping(), "Declared as wrapper=True or hookwrapper=True but function is not a generator function. Compare"),
        (object(), "implements no hook"),
        (7, "implements no hook"),
    ],
)
def test_a_plugin_without_valid_hooks_is_reported(plugin: object, message: str) -> None:
    """An unknown hook, an unknown argument and the lack of any hook are failures that name the mistake."""
    with running_host(distributions=with_good_plugin(plugin)) as host, host.client() as client:
        assert client.get("/good").status_code == 200
        assert message in reason(host, "bad")


def test_an_optional_hook_may_be_unknown() -> None:
    """A plugin can have hooks of a later version, if it marks them as optional."""
    with running_host(distributions=with_good_plugin(Optional())) as host:
        assert reason(host, "bad") == "active: None"


@dataclass
class Unhashable:
    """A plugin object that has no hash."""

    @hookimpl
    def register_checks(self, context: Any) -> list[Check]:
        """Return nothing."""
        return []


@pytest.mark.parametrize("plugin", [Unhashable(), SimpleNamespace(register_checks=Unhashable().register_checks)])
def test_a_plugin_object_without_a_hash_affects_no_other(plugin: object) -> None:
    """It serves or fails alone, and the other plugins' hooks are called."""
    with running_host(distributions=with_good_plugin(plugin)) as host, host.client() as client:
        assert client.get("/good").status_code == 200
        assert reason(host, "good") == "active: None"


class Async:
    """Functions that may not be async, since nothing awaits them."""

    @staticmethod
    async def waits(*_: Any) -> Any:
        """Return nothing yet."""

    @staticmethod
    async def yields(*_: Any) -> Any:
        """Yield nothing yet."""
        yield


@pytest.mark.parametrize("hook", [*BUILD_HOOKS, "register_commands", "started", "draining", "stopping"])
@pytest.mark.parametrize("function", [Async.waits, Async.yields])
def test_an_async_hook_fails_its_plugin(hook: str, function: Callable[..., Any]) -> None:
    """The host names it before it calls anything, so no coroutine is left that was never awaited."""
    plugin = Plugin(**{hook: function})
    with running_host(distributions=with_good_plugin(plugin)) as host, host.client() as client:
        assert client.get("/good").status_code == 200
        assert reason(host, "bad").startswith(f"failed: import: its hook {function.__name__} is async")


@pytest.mark.parametrize(
    ("hook", "returned"),
    [
        ("register_authenticator", Async.waits),
        ("register_checks", [Check(name="late", check=Async.waits)]),  # type: ignore[arg-type] # it is rubbish
        ("register_pages", [Page(name="late", title="Late", render=Async.waits)]),  # type: ignore[arg-type] # it is rubbish
    ],
)
def test_an_async_callback_fails_its_plugin(hook: str, returned: Any) -> None:
    """The host also names functions that it would call while it serves."""
    with running_host(distributions=with_good_plugin(hook_of(hook, lambda: returned))) as host:
        assert "is async, and plughost serves WSGI" in reason(host, "bad")


def test_one_object_with_two_names_is_reported() -> None:
    """The first plugin serves; the second fails, since the same object is registered already."""
    both = Speaker("one", "/one")
    with running_host(distributions=[plugin_distribution("a", both), plugin_distribution("b", both)]) as host:
        assert (reason(host, "a"), reason(host, "b")[:6]) == ("active: None", "failed")


@pytest.mark.parametrize("hook", ["started", "draining", "stopping"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_failing_life_cycle_hook_is_recorded_and_the_plugin_serves(hook: str, error: BaseException) -> None:
    """An exception of `started`, `draining` or `stopping` is recorded; the plugin serves, and the host can stop."""
    bad = serving(Says("bad"), "/bad")
    vars(bad).update(vars(hook_of(hook, raising(error))))
    with running_host(distributions=with_good_plugin(bad)) as host:
        with host.client() as client:
            assert client.get("/bad").status_code == 200
        assert host.host.generation is not None
        entry = host.host.generation.registry.get("bad")
        host.host.stop()
    assert entry is not None
    assert [failure.stage for failure in entry.trouble] == [hook]
    assert "plughost plugins" not in entry.trouble[0].advice  # which doesn't call this hook, so it has no traceback

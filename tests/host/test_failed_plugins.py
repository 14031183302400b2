"""How a failed, blocked or skipped plugin affects the others."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from pydantic import create_model
from tests.host.packages import plugin_entry, write_package
from tests.host.plugins import Plugin, Says, Speaker, group_of, raising, reason, with_good_plugin

import plughost
from plughost import (
    PluginContext,
    PluginError,
    RouteGroup,
    Store,
    hookimpl,
)
from plughost._runtime.generation import GenerationRefused
from plughost.testing import plugin_distribution, running_host


class Guarded:
    """A plugin that requires an authenticator; its hooks may be called once per instance."""

    made: ClassVar[list[Guarded]] = []

    def __init__(self) -> None:
        """Record the instance."""
        self.made.append(self)
        self.asked = 0

    @hookimpl
    def register_routes(self, context: PluginContext[Any]) -> list[RouteGroup]:
        """Mount a resource that needs the authenticator."""
        self.asked += 1
        if context.authenticator is None:
            raise PluginError("nobody names principals", "Install an authenticator.")
        return [group_of(Says("guarded"), "/guarded")]


@pytest.mark.parametrize(
    "bad",
    [
        {"register_routes": lambda context: [group_of(Says("bad"), "/good")]},
        {"register_pages": lambda context: 7},
        {"register_middleware": raising(ValueError("x"))},
    ],
    ids=["conflict", "later hook", "earlier hook"],
)
def test_the_authenticator_of_a_plugin_that_fails_later_is_withdrawn(bad: dict[str, Any]) -> None:
    """A plugin that needs it is called again, as a new instance, and fails with its own message; the rest serve."""
    offers = Plugin(register_authenticator=lambda context: lambda request: None, **bad)
    Guarded.made.clear()
    installed = [
        plugin_distribution("good", Speaker("good", "/good")),
        plugin_distribution("guarded", Guarded),
        plugin_distribution("offers", offers),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        assert reason(host, "offers").startswith("failed: ")
        message = "failed: register_routes: nobody names principals. Install an authenticator."
        assert reason(host, "guarded") == message
        assert client.get("/good").status_code == 200
        assert client.get("/guarded").status_code == 404
    assert [each.asked for each in Guarded.made] == [1, 1]


def test_the_first_of_two_authenticators_is_used() -> None:
    """The second one's plugin fails, and every plugin that needs an authenticator gets the first."""
    given: list[Any] = []

    def first(request: Any) -> None:
        """Authenticate nobody."""

    def ask(context: PluginContext[Any]) -> list[Any]:
        given.append(context.authenticator)
        return []

    installed = [
        plugin_distribution("a", Plugin(register_authenticator=lambda context: first)),
        plugin_distribution("b", Plugin(register_authenticator=lambda context: lambda request: None)),
        plugin_distribution("knows", Plugin(register_checks=ask)),
    ]
    with running_host(distributions=installed) as host:
        assert reason(host, "b").startswith("failed: conflict: ")
        assert given == [first]


def test_dependents_of_a_failed_plugin_are_blocked() -> None:
    """A plugin that requires a failed plugin, even indirectly, is blocked with its name; its hooks aren't called."""
    asked: list[str] = []
    installed = [
        plugin_distribution("base", ImportError("no module")),
        plugin_distribution("middle", Speaker("middle", "/middle"), requires=["plughost-base"]),
        plugin_distribution(
            "top", Plugin(register_checks=lambda context: asked.append("top")), requires=["plughost-middle>=1"]
        ),
        plugin_distribution("good", Speaker("good", "/good")),
    ]
    with running_host(distributions=installed) as host, host.client() as client:
        assert client.get("/good").status_code == 200
        for name in ("middle", "top"):
            assert "it requires base (plughost-base 1.0), which is failed" in reason(host, name)
            assert reason(host, name).startswith("blocked: ")
    assert asked == []


def test_a_plugin_blocked_by_a_conflict_hides_no_other_conflict() -> None:
    """The host also checks the plugins after one that a conflict has blocked."""
    installed = [
        plugin_distribution("a", Speaker("a")),
        plugin_distribution("b", Speaker("b")),
        plugin_distribution("c", Speaker("c", "/c"), requires=["plughost-b"]),
        plugin_distribution("d", Speaker("d"), requires=["plughost-a"]),
    ]
    with running_host(distributions=installed) as host:
        assert reason(host, "c").startswith("blocked: ")
        assert "the prefix /say on site main belongs to a " in reason(host, "d")


def test_a_misspelt_setting_of_a_plugin_is_reported() -> None:
    """The reason names the key, the most similar known key, and the table to correct."""
    plugin = Plugin(register_settings=lambda *_: create_model("Settings", limit=(int, 1)))
    settings = {"plugins": {"limited": {"limitt": 2}}}
    with running_host(distributions=[plugin_distribution("limited", plugin)], settings=settings) as host:
        message = "plugins.limited.limitt: unknown key; did you mean limit? Mend the table [plugins.limited]."
        assert reason(host, "limited").endswith(message)


def test_the_place_of_a_failure_is_where_the_plugin_raised() -> None:
    """The innermost of the plugin's own frames is named, with its line; frames of the host are not."""

    def outer(context: PluginContext[Any]) -> list[RouteGroup]:
        return inner()

    def inner() -> list[RouteGroup]:
        raise ValueError("no luck")

    line = inner.__code__.co_firstlineno + 1
    with running_host(distributions=with_good_plugin(Plugin(register_routes=outer))) as host:
        assert f"ValueError at test_failed_plugins.py:{line}: no luck" in reason(host, "bad")


MISTAKES: Final = {
    "planted-syntax": ("def routes(:\n", "SyntaxError at parts.py:2: invalid syntax. The traceback"),
    "planted-library": (
        "import json\n\nTEXT = json.loads('{')\n",
        "JSONDecodeError at parts.py:4: Expecting property name",
    ),
    "planted-own": (
        "from {package}.prats import X\n",
        "ModuleNotFoundError at parts.py:2: No module named '{package}.prats'. Mend the import",
    ),
    "planted-name": (
        "from {package} import prats\n",
        "ImportError at parts.py:2: cannot import name 'prats' from '{package}'",
    ),
    "planted-older": ("from plughost import Answer\n", "This version of plughost has no such name: upgrade the"),
    "planted-newer": ("import plughost.later\n", "No module named 'plughost.later'. This version of plughost has no"),
    "planted-lacking": ("import not_installed\n", "at parts.py:2: No module named 'not_installed'. Install what"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_failure_names_the_faulty_line_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is the line that the author must correct, not a library's or that of the importing module."""
    source, message = MISTAKES[name]
    package = name.replace("-", "_")
    parts = f'"""Parts."""\n{source.replace("{package}", package)}'
    modules = {"__init__": "", "plugin": f"import {package}.parts\n", "parts": parts}
    files = {f"{package}/{module}.py": text for module, text in modules.items()}
    write_package(tmp_path, name, files, entry_points=plugin_entry(name, f"{package}.plugin"))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with running_host([name]) as host:
        assert message.replace("{package}", package) in reason(host, name)


def test_the_failure_names_the_line_of_a_plugin_beside_the_host(tmp_path: Path) -> None:
    """In the folder where pip installs both, other files don't belong to the host."""
    (tmp_path / "plughost").symlink_to(Path(plughost.__file__).parent)
    hook = "from plughost import hookimpl\n\n\n@hookimpl\ndef register_routes(context):\n    return 1 / 0\n"
    entry = plugin_entry("planted-beside", "planted_beside")
    write_package(tmp_path, "planted-beside", {"planted_beside.py": hook}, entry_points=entry)
    command = [sys.executable, "-c", "from plughost._cli.main import main; main()", "check"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "ZeroDivisionError at planted_beside.py:6" in done.stdout + done.stderr


@pytest.mark.parametrize("settings", [{"disabled": ["bad"]}, {}])
def test_a_skipped_plugin_is_never_imported(settings: dict[str, Any]) -> None:
    """`disabled` and `without` don't load the plugin's entry point, and its dependents are blocked."""
    loaded: list[str] = []

    class Loads(Speaker):
        def __init__(self) -> None:
            loaded.append("bad")
            super().__init__("bad")

    installed = [
        *with_good_plugin(Loads),
        plugin_distribution("needy", Speaker("n", "/needy"), requires=["plughost-bad"]),
    ]
    without = () if settings else ("bad",)
    with running_host(distributions=installed, settings=settings, without=without) as host:
        assert reason(host, "bad") == "disabled: None"
        assert "requires bad (plughost-bad 1.0), which is disabled" in reason(host, "needy")
    assert loaded == []


def test_the_place_of_an_unknown_store_is_a_warning(tmp_path: Path) -> None:
    """Otherwise the data of a store whose name is misspelt would silently go elsewhere."""
    store = Store(name="two-words", migrations=tmp_path, tables=())
    plugin = plugin_distribution("a", Plugin(register_stores=lambda context: [store]))
    for key, value in (("urls", "sqlite"), ("tuning", {"pool_size": 2})):
        settings = {"stores": {key: {"two-word": value, "two_words": value}}}
        with running_host(distributions=[plugin], settings=settings) as host:
            named = [each for each in host.host.generation.warnings if each.startswith("stores.")]
        advice = "no plugin that serves has a store of this name; did you mean two-words?"
        assert named == [f"stores.{key} names two-word, and {advice}"]


@pytest.mark.parametrize("skipping", [{"settings": {"disabled": ["godo"]}}, {"without": ["godo"]}])
def test_skipping_an_unknown_plugin_is_a_warning(skipping: dict[str, Any]) -> None:
    """The warning for a misspelt name suggests the most similar one."""
    with running_host(distributions=with_good_plugin(ImportError("x")), **skipping) as host:
        message = "godo is to be skipped, and no plugin of this name is installed; did you mean good?"
        assert host.host.generation is not None
        assert message in host.host.generation.warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strict": True}, "bad is failed"),
        ({"settings": {"strict": True}}, "bad is failed"),
        ({"settings": {"required": ["bad"]}}, "the required plugin bad is failed"),
        ({"settings": {"required": ["ghost"]}}, "the required plugin ghost is not installed; known: bad, good"),
        (
            {"settings": {"required": ["ghost", "bad"]}},
            "(?m)ghost is not installed; known: bad, good; the required plugin bad is failed$",
        ),
        ({"settings": {"required": ["godo"]}}, r"the required plugin godo is not installed; did you mean good\?"),
        ({"settings": {"required": ["good"]}, "without": ["good"]}, "the required plugin good is disabled"),
    ],
)
def test_a_host_without_a_mandatory_plugin_refuses_to_start(options: dict[str, Any], message: str) -> None:
    """`strict` and `required` refuse the start, name the plugin, and leave no port open."""
    with (
        pytest.raises(GenerationRefused, match=message),
        running_host(distributions=with_good_plugin(ImportError("x")), **options),
    ):
        pass


def test_the_test_kit_says_why_a_host_refuses_to_start() -> None:
    """The author of a plugin sees its reason, which only the host's log would have otherwise."""
    with (
        pytest.raises(GenerationRefused) as refused,
        running_host(distributions=with_good_plugin(ImportError("no such module")), strict=True),
    ):
        pass
    (note,) = refused.value.__notes__
    assert note.startswith("bad (plughost-bad 1.0): import: ImportError: no such module")


def test_a_file_without_permission_is_named() -> None:
    """The operator must correct this, not the plugin's author."""
    kept = Plugin(register_checks=raising(PermissionError(13, "Permission denied", "/var/lib/plughost/plugins")))
    with running_host(distributions=[plugin_distribution("kept", kept)]) as host:
        message = reason(host, "kept")
    assert message.endswith("Let the user that runs plughost read and write /var/lib/plughost/plugins.")


def test_looking_up_a_store_by_its_name_is_reported() -> None:
    """Only the declaration says which types the store's operations have, and which plugin owns it."""
    asking = Plugin(register_routes=lambda context: context.store("notes"))
    with running_host(distributions=[plugin_distribution("asking", asking)]) as host:
        message = reason(host, "asking")
    assert "it asks for the store 'notes', and may use none." in message
    assert message.endswith("give the declaration, not its name.")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("astray_none.plugin", "there is no module astray_none"),
        ("astray_some.plugin", "there is no module astray_some.plugin"),
        ("astray_some:Plugin", "astray_some has no Plugin"),
        ("astray-some", "that is no name of a module"),
    ],
)
def test_an_entry_point_to_nothing_is_reported(
    target: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin's own metadata is wrong; installing something wouldn't help."""
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {"astray_some/__init__.py": ""}
    write_package(tmp_path, "plughost-astray", files, entry_points=plugin_entry("astray", target))
    with running_host(distributions=list(metadata.distributions(path=[str(tmp_path)]))) as host:
        message = reason(host, "astray")
    advice = "Point it at a module of plughost-astray, or at an object there, and install that again."
    assert message == f"failed: import: its entry point leads to {target}, and {why}. {advice}"


def test_an_entry_point_to_another_plugins_module_is_reported() -> None:
    """Two distributions that bring one module, as a fork may, are told apart by name; the first one serves."""
    shared = Speaker("one")
    with running_host(distributions=[plugin_distribution(name, shared) for name in ("one", "two")]) as host:
        assert reason(host, "one") == "active: None"
        assert "and that is the plugin one already. Point it at a module of plughost-two," in reason(host, "two")


def test_a_missing_import_of_a_module_is_no_fault_of_the_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure names the importing line."""
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {"asks_in_vain.py": "import os\nos.nothing"}
    write_package(tmp_path, "plughost-asking", files, entry_points=plugin_entry("asking", "asks_in_vain"))
    with running_host(distributions=list(metadata.distributions(path=[str(tmp_path)]))) as host:
        assert "AttributeError at asks_in_vain.py:2" in reason(host, "asking")


def test_a_blocked_plugin_gives_up_its_claims() -> None:
    """Another plugin gets the table of a plugin that is blocked by a conflict of its requirement."""

    def keeps(name: str, table: str) -> Plugin:
        migrations = resources.files(__package__ or "tests.host")
        declared = Store(name=name, entities=lambda database: database, migrations=migrations, tables=(table,))
        return Plugin(register_stores=lambda context: [declared])

    installed = [
        plugin_distribution("a", keeps("one", "products")),
        plugin_distribution("b", keeps("two", "products")),
        plugin_distribution("c", keeps("three", "orders"), requires=["plughost-b"]),
        plugin_distribution("d", keeps("four", "orders")),
    ]
    with running_host(distributions=installed) as host:
        assert "the table products belongs to a" in reason(host, "b")
        assert reason(host, "c").startswith("blocked: ")
        assert "belongs to" not in reason(host, "d")


def test_the_first_owner_of_a_store_serves_with_it(tmp_path: Path) -> None:
    """The plugin that claims the same store later fails before it is given, and opens nothing."""
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0001_notes.sql").write_text("CREATE TABLE notes (id INTEGER PRIMARY KEY);")
    declared = Store(name="notes", migrations=tmp_path, tables=("notes",))
    stores: list[str] = []

    def keeps(context: PluginContext[Any]) -> list[RouteGroup]:
        stores.append(f"{context.plugin}: {context.store(declared).name}")
        return []

    installed = [
        plugin_distribution(name, Plugin(register_stores=lambda context: [declared], register_routes=keeps))
        for name in ("a", "b")
    ]
    with running_host(distributions=installed) as host:
        assert (reason(host, "a"), stores) == ("active: None", ["a: notes"])
        assert "the store notes belongs to a" in reason(host, "b")

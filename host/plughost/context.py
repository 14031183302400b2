"""What a plugin is given: its settings, stores, logger and folder, and nothing of its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from plughost.control import ask
from plughost.private_files import make_folder

if TYPE_CHECKING:
    import structlog

    from plughost.declarations import Principal
    from plughost.http.request import Request
    from plughost.ratelimits import Counter, RateLimits
    from plughost.stores import OpenStore
    from plughost.view import HostView

SettingsT = TypeVar("SettingsT")
T = TypeVar("T")


def _counted_in_memory() -> RateLimits:
    from plughost.ratelimits import RateLimits  # noqa: PLC0415 - brings limits and Falcon: not every command needs them

    return RateLimits()


@dataclass(frozen=True, kw_only=True)
class PluginContext(Generic[SettingsT]):
    """A plugin's view of its host, the same object for each of its hooks in one generation.

    Attributes:
        plugin: The plugin's name.
        settings: Its validated settings: an instance of the model that `register_settings` returned, else None.
        dev: Whether the host runs with `--dev`.
        logger: A structured logger that names the plugin in every line.
        data_dir: A folder of the plugin's own, which is there from the first use of this attribute.
        stores: The open stores that the plugin may use, by name: its own, and those of the plugins it requires.
        authenticator: Names the principal behind a request; None where no installed plugin offers one.
        rate_limits: Where the host counts; see `counter`.
        host: What the plugin may see of its host, and ask of it.
        announcements: Lines for the person who starts the host; see `announce`.
    """

    plugin: str
    settings: SettingsT
    dev: bool
    logger: structlog.stdlib.BoundLogger
    data_root: Path
    host: HostView
    stores: Mapping[str, OpenStore[Any]] = field(default_factory=dict)
    authenticator: Callable[[Request], Principal | None] | None = None
    rate_limits: RateLimits = field(default_factory=_counted_in_memory)
    announcements: list[str] = field(default_factory=list)

    @property
    def data_dir(self) -> Path:
        """The plugin's own folder below the host's data folder, made with mode 0700."""
        folder = self.data_root / "plugins" / self.plugin
        make_folder(folder)
        return folder

    def counter(self, limit: str, name: str, *, always: bool = False) -> Counter:
        """Return a counter of the plugin's own; to limit requests, see `plughost.ratelimits.RateLimit`.

        Args:
            limit: An amount per time, such as `5/minute`.
            name: What is counted; counters of one name and limit count together, on every host that shares a Redis.
            always: Go on counting in this process while Redis is away, even where the settings would let through:
                for what must never go uncounted, such as guesses at a password.
        """
        return self.rate_limits.counter(f"{self.plugin}/{name}", limit, always=always)

    def emit(self, event: str, **fields: Any) -> None:
        """Tell whoever watches the host of something that happened in this plugin.

        Args:
            event: What happened, such as `login`.
            **fields: Details, in plain values; never secrets.
        """
        self.host.events.emit(event, self.plugin, **fields)

    def keep(self, name: str, make: Callable[[], T]) -> T:
        """Return an object that stays for as long as the host runs, whatever is reloaded meanwhile.

        A plugin that changed gets a new context, and one that is a class a new instance; what must outlive that is
        kept here. Its class should be one that does not come from the plugin, whose modules may be imported afresh.

        Args:
            name: What the plugin calls it.
            make: Makes it the first time.
        """
        return self.host.keep(self.plugin, name, make)

    def take_questions(self, question: str, answer: Callable[[], Mapping[str, Any]]) -> None:
        """Let the plugin's commands ask the plugin in the host that runs; they use `ask_running`.

        Args:
            question: What is asked, one word.
            answer: Returns the answer, in values that JSON can have; called in a thread of its own.
        """
        self.host.take_questions(self.plugin, question, answer)

    def ask_running(self, question: str) -> Mapping[str, Any]:
        """Ask the plugin in the host that runs on the same data folder; for commands.

        Args:
            question: What the plugin takes by `take_questions`.

        Returns:
            The answer; a mapping with `error` alone where the plugin does not answer there.

        Raises:
            NotRunning: No host runs on the data folder.
        """
        return ask(self.data_root, "ask", plugin=self.plugin, question=question)

    def announce(self, line: str) -> None:
        """Show a line to the person who starts the host, such as a demo account or an address to open."""
        self.announcements.append(line)

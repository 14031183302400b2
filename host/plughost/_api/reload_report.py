"""The report of a reload, for plugins and for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """What came of a reload.

    A plugin is in one of the lists at most, under the word that is its state wherever it is shown.

    Attributes:
        swapped: Whether another generation serves now. Where not, nothing but the certificate has changed.
        generation: The number of the generation that serves now.
        added: Plugins that serve now and did not before.
        changed: Plugins that were imported or asked for their declarations anew.
        disabled: Plugins that served before and are disabled now.
        removed: Plugins that served before and are not installed any more.
        reused: Plugins that go on with their memory.
        failed: Plugins that can't serve, with the reason.
        blocked: Plugins that can't serve since one that they require doesn't, with the reason.
        problems: Why nothing changed.
        cut_off: Which requests of the generation before were not answered within `grace_time`.
        restart_needed: What takes effect only when the host is restarted, and why.
        trouble: Plugins that serve, or have left, and whose `started` or `stopping` failed or did not return.
        certificate: The certificate that HTTPS listeners show instead of another one: names and end, else empty.
        certificate_refused: Why they don't show the one that is on the disk now, else empty.
        seconds: How long it took, by plugin for those that were loaded, and in all under `total`.
    """

    swapped: bool
    generation: int
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    blocked: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    cut_off: tuple[str, ...] = ()
    restart_needed: tuple[str, ...] = ()
    trouble: tuple[tuple[str, str], ...] = ()
    certificate: str = ""
    certificate_refused: str = ""
    seconds: dict[str, float]

    @property
    def ok(self) -> bool:
        """Whether all that is installed and enabled now serves well, with the certificate that is on the disk."""
        lacking = self.failed or self.blocked or self.restart_needed or self.trouble or self.certificate_refused
        return self.swapped and not lacking

    def as_plain(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return {"ok": self.ok, **asdict(self)}

    @classmethod
    def from_plain(cls, told: Mapping[str, Any]) -> ReloadReport:
        """Return the report of which `as_plain` returned the values, in this or another version of the host."""
        known: dict[str, Any] = {field.name: told[field.name] for field in fields(cls) if field.name in told}
        for name, value in known.items():
            known[name] = tuple(value) if isinstance(value, list) else value
        return cls(**known)

    def __rich__(self) -> RenderableType:
        """Return the report as rich's consoles print it."""
        from rich.console import Group  # noqa: PLC0415 - only commands print it
        from rich.table import Table  # noqa: PLC0415 - see above
        from rich.text import Text  # noqa: PLC0415 - see above

        head = Text(f"Not taken up; generation {self.generation} goes on.", "bold red")
        if self.swapped:
            head = Text(f"Generation {self.generation} serves, after {self.seconds['total']:.2f} s.", "bold")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for word, style, told in self._rows():
            table.add_row(Text(f"  {word}", style=style), Text(told))
        return Group(head, table)

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield what there is to say: a word for it, how that looks, and the rest."""
        for what in ("added", "changed", "disabled", "removed", "reused"):
            names = getattr(self, what)
            if names:
                yield what, "", "  ".join(map(self._timed, names))
        for what, style in (("failed", "bold red"), ("blocked", "yellow"), ("trouble", "bold red")):
            yield from ((what, style, f"{label}\n{reason}") for label, reason in getattr(self, what))
        yield from (("cut off", "yellow", each) for each in self.cut_off)
        yield from (("problem", "bold red", each) for each in self.problems if not self._tells_no_more(each))
        yield from (("restart needed", "yellow", each) for each in self.restart_needed)
        if self.certificate:
            yield "certificate", "", f"for {self.certificate}, is shown from now on"
        if self.certificate_refused:
            yield "certificate", "bold red", f"refused, the one before stays: {self.certificate_refused}"

    def _tells_no_more(self, problem: str) -> bool:
        """Tell whether a problem only names all that failed or is blocked, which have their own rows."""
        names = [label.split()[0] for label, _ in (*self.failed, *self.blocked)]
        return sorted(names) == sorted(part.partition(" ")[0] for part in problem.split("; "))

    def _timed(self, name: str) -> str:
        return f"{name} ({self.seconds[name]:.2f} s)" if name in self.seconds else name

"""The report of a reload, for plugins and for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """The result of a reload.

    A plugin is in one of the lists at most. The list's name is its state wherever it is shown.

    Attributes:
        swapped: Whether another generation serves now. If not, nothing but the certificate has changed.
        generation: The number of the generation that serves now.
        added: Plugins that serve now and did not before.
        changed: Plugins that were imported again, or whose hooks were called again.
        disabled: Plugins that served before and are disabled now.
        removed: Plugins that served before and are not installed any more.
        reused: Plugins that serve on with what they hold in memory.
        failed: Plugins that can't serve, with the reason.
        blocked: Plugins that can't serve since one that they require doesn't, with the reason.
        problems: Why nothing changed.
        cut_off: Requests of the previous generation that were not answered within `grace_time`.
        restart_needed: What takes effect only when the host is restarted, and why.
        trouble: Plugins that serve, or have left, and whose `started` or `stopping` failed or did not return.
        certificate: The names and end of the new certificate of the HTTPS listeners, else empty.
        certificate_refused: Why they don't use the certificate on the disk, else empty.
        certificate_warnings: What a start would warn of in the certificate on the disk.
        seconds: How long the reload took, for each loaded plugin and, as `total`, in all.
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
    certificate_warnings: tuple[str, ...] = ()
    seconds: dict[str, float]

    @property
    def ok(self) -> bool:
        """Whether all installed and enabled plugins serve without problems, with the certificate on the disk."""
        problems = self.failed or self.blocked or self.restart_needed or self.trouble or self.certificate_refused
        return self.swapped and not problems

    def as_plain(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"ok": self.ok, **asdict(self)}

    @classmethod
    def from_plain(cls, told: Mapping[str, Any]) -> ReloadReport:
        """Return a report from the values of `as_plain`, of this or another version of the host."""
        known: dict[str, Any] = {field.name: told[field.name] for field in fields(cls) if field.name in told}
        for name, value in known.items():
            known[name] = tuple(value) if isinstance(value, list) else value
        return cls(**known)

    def __rich__(self) -> RenderableType:
        """Return the report for rich's consoles."""
        from rich.columns import Columns  # noqa: PLC0415 - only commands print it
        from rich.console import Group  # noqa: PLC0415 - see above
        from rich.constrain import Constrain  # noqa: PLC0415 - see above
        from rich.table import Table  # noqa: PLC0415 - see above
        from rich.text import Text  # noqa: PLC0415 - see above

        head = Text(f"Not taken up; generation {self.generation} goes on.", "bold red")
        if self.swapped:
            head = Text(f"Generation {self.generation} serves, after {self.seconds['total']:.2f} s.", "bold")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for what in ("added", "changed", "disabled", "removed", "reused"):
            names = [self._with_seconds(name) for name in getattr(self, what)]
            if names:
                table.add_row(f"  {what}", Constrain(Columns(names, padding=(0, 2)), len("  ".join(names))))
        for heading, style, text in self._rows():
            table.add_row(Text(f"  {heading}", style=style), Text(text))
        return Group(head, table)

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield the rows on what went wrong, and on the certificate: a heading, its style, and the text."""
        for what, style in (("failed", "bold red"), ("blocked", "yellow"), ("trouble", "bold red")):
            yield from ((what, style, f"{label}\n{reason}") for label, reason in getattr(self, what))
        yield from (("cut off", "yellow", each) for each in self.cut_off)
        yield from (("problem", "bold red", each) for each in self.problems if not self._is_redundant(each))
        yield from (("restart needed", "yellow", each) for each in self.restart_needed)
        if self.certificate:
            yield "certificate", "", f"for {self.certificate}, is shown from now on"
        if self.certificate_refused:
            yield "certificate", "bold red", f"refused, the one before stays: {self.certificate_refused}"
        yield from (("certificate", "yellow", each) for each in self.certificate_warnings)

    def _is_redundant(self, problem: str) -> bool:
        """Return whether a problem only names all failed and blocked plugins, which have their own rows."""
        names = [label.split()[0] for label, _ in (*self.failed, *self.blocked)]
        return sorted(names) == sorted(part.partition(" ")[0] for part in problem.split("; "))

    def _with_seconds(self, name: str) -> str:
        return f"{name} ({self.seconds[name]:.2f} s)" if name in self.seconds else name

"""The console's actions on the host. Each runs in its own thread, because it waits for requests to finish."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from plughost import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plughost import ReloadReport

Job = dict[str, Any]
_MOST: Final = 20


class Jobs:
    """The recent jobs by id. Only one runs at a time."""

    def __init__(self, known: dict[str, Job]) -> None:
        """Keep jobs in a mapping: `title`, `done`, and then `report` or `problem`."""
        self._known = known
        self._starting = threading.Lock()

    def start(
        self, title: str, work: Callable[[], ReloadReport | str], before: Mapping[str, str] | None = None
    ) -> str | None:
        """Start a job. Return its id, or None if another job is running.

        Args:
            title: What it does, for people.
            work: The action. It returns the report of a reload, or a sentence about the result.
            before: For a setting, the form fields that restore the old value.
        """
        with self._starting:
            if any(not each["done"] for each in self._known.values()):
                return None
            name = secrets.token_urlsafe(8)
            job = {"title": title, "done": False, "report": None, "problem": "", "told": "", "before": before}
            threading.Thread(target=_run, args=[job, work], name=f"console:{title}").start()
            self._known[name] = job  # only now: without a thread, it would never be done
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return name

    def get(self, name: str | None) -> Job | None:
        """Return a job."""
        return self._known.get(name or "")


def _run(job: Job, work: Callable[[], ReloadReport | str]) -> None:
    try:
        came = work()
        job |= {"told": came} if isinstance(came, str) else {"report": came.as_plain()}
    except CommandError as error:
        job["problem"] = str(error)
    except Exception as error:  # noqa: BLE001 - every error is shown to the waiting user
        job["problem"] = f"{type(error).__name__}: {error}"
    finally:
        job["done"] = True

"""A program that runs pip, but can refuse URLs that packages name in their requirements.

pip has no option for that: it downloads and builds the URL of `Requires-Dist: name @ URL` before it reports it. The
functions wrapped here are not public in pip. A pip without them is not run.

It reads its input from standard input: every user of a machine can see the arguments of processes, and those of pip can
contain the password of an index.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

TOLD: Final = "A requirement names a URL that you did not name: "
_READERS: Final = ("install_req_from_req_string", "install_req_from_parsed_requirement")


def run(location: str, places: Collection[str] | None, arguments: list[str]) -> int:
    """Run pip. Fail if a package or a constraint names a URL that is not allowed.

    `location` is the archive that contains pip; empty if pip is installed. `places` are URLs without credentials; None
    allows any.
    """
    if location:
        sys.path.insert(0, location)
    if places is not None:
        _allow_only(places)
    from pip._internal.cli.main import main  # noqa: PLC0415 - found only now, and it binds the wrapped functions

    return int(main(arguments))


def _allow_only(places: Collection[str]) -> None:
    from pip._internal.exceptions import InstallationError  # noqa: PLC0415 - found only now
    from pip._internal.req import constructors  # noqa: PLC0415 - as above

    def wrap(read: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any, **kwargs: Any) -> Any:
            requirement = read(*args, **kwargs)
            if requirement.link is not None and (requirement.constraint or not requirement.user_supplied):
                parts = urlsplit(requirement.link.url)
                place = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
                if place not in places:
                    raise InstallationError(f"{TOLD}{requirement.name} from {place}. If you trust it, name it, too.")
            return requirement

        return checked

    for name in _READERS:
        if not hasattr(constructors, name):
            raise SystemExit(f"ERROR: This pip can't be prevented from following URLs of packages: it has no {name}.")
        setattr(constructors, name, wrap(getattr(constructors, name)))


if __name__ == "__main__":
    sys.exit(run(**json.load(sys.stdin)))

"""pip, kept from following URLs that packages name as the place of what they require: a program, which runs pip.

pip has no option for that: it downloads what `Requires-Dist: name @ URL` names, and builds it, before it tells anybody.
What is wrapped here is not pip's public interface. A pip that lacks it is not run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

TOLD: Final = "A requirement names its own place, and nobody else does: "
_READERS: Final = ("install_req_from_req_string", "install_req_from_parsed_requirement")


def run(location: str, places: Collection[str], arguments: list[str]) -> int:
    """Run pip; it fails where a package or a constraint names a place that is not among some.

    Args:
        location: The archive that pip is in; empty where it is installed.
        places: The URLs that the operator named, without credentials.
        arguments: What pip is called with.
    """
    if location:
        sys.path.insert(0, location)
    from pip._internal.exceptions import InstallationError  # noqa: PLC0415 - known only now
    from pip._internal.req import constructors  # noqa: PLC0415 - as above

    def careful(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **more: Any) -> Any:
            made = read(*args, **more)
            if made.link is not None and (made.constraint or not made.user_supplied):
                parts = urlsplit(made.link.url)
                place = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
                if place not in places:
                    raise InstallationError(f"{TOLD}{made.name} from {place}. Where you trust that, name it too.")
            return made

        return reading

    for name in _READERS:
        if not hasattr(constructors, name):
            raise SystemExit(f"ERROR: This pip can't be kept from following URLs of packages: it has no {name}.")
        setattr(constructors, name, careful(getattr(constructors, name)))
    from pip._internal.cli.main import main  # noqa: PLC0415 - this binds what was wrapped

    return int(main(arguments))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]))

"""The stacks of threads. As a program: prints the sizes, in bytes, of those that run a plugin's code in a host."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from tests.host.plugins import Plugin, group_of

from plughost.testing import plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

    from plughost import PluginContext, RouteGroup


def stack_size() -> int:
    """Return the size of this thread's stack, in bytes."""
    libc = ctypes.CDLL(None)
    libc.pthread_self.restype = ctypes.c_ulong
    attributes, size = ctypes.create_string_buffer(64), ctypes.c_size_t()
    libc.pthread_getattr_np(ctypes.c_ulong(libc.pthread_self()), attributes)
    libc.pthread_attr_getstacksize(attributes, ctypes.byref(size))
    libc.pthread_attr_destroy(attributes)
    return size.value


class _Measures:
    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.media = stack_size()


def _main() -> None:
    sizes = []

    def register_routes(context: PluginContext[None]) -> list[RouteGroup]:
        sizes.append(stack_size())
        return [group_of(_Measures())]

    with running_host(
        distributions=[plugin_distribution("measuring", Plugin(register_routes=register_routes))]
    ) as host:
        for scheme in ("http", "https"):
            with host.client(scheme=scheme) as client:
                sizes.append(client.get("/say").json())
    print(*sizes)  # noqa: T201 - a program


if __name__ == "__main__":
    _main()

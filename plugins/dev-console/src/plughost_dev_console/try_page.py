"""The page Try: an operation's form, and the response to a sent request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import falcon

from plughost_dev_console.bodies import body_of
from plughost_dev_console.client import send
from plughost_dev_console.forms import LOGIN, Outgoing, find, inputs, outgoing
from plughost_dev_console.guard import PREFIX
from plughost_dev_console.offers import address
from plughost_dev_console.snippets import snippets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plughost.http import Request
    from plughost_dev_console.console import Console

_NOT_RESENT: Final = frozenset({"HOST", "CONTENT-LENGTH", "CONNECTION", "TRANSFER-ENCODING", "X-REQUEST-ID"})


class Try:
    """Shows the form of an operation, and sends requests: the form's, or a recorded one again."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_get(self, req: Request, resp: falcon.Response, site: str, method: str, path: str) -> None:
        """Show the form."""
        self._write(req, resp, {"site": site, "method": method, "path": path})

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Send the request, and show the form with the response."""
        self._write(req, resp, req.context.form, sends=True)

    def _write(self, req: Request, resp: falcon.Response, form: Mapping[str, str], *, sends: bool = False) -> None:
        host = self._console.host
        site, method, path = (form.get(each, "") for each in ("site", "method", "path"))
        found = find(host, site, method, path)
        if found is None:
            raise falcon.HTTPNotFound(description=f"There is no operation {method} {path} on a site {site}.")
        plugin, group, operation = found
        schemes = sorted({each.scheme for each in host.listeners if each.site == site})
        logins = self._console.control.logins
        shown: dict[str, Any] = {"answer": None, "number": None, "snippets": (), "issued": ""}
        if sends:
            shown = self._sent(outgoing(site, method, path, operation, form), form.get("account", ""))
        example = body_of(operation)
        # A demo account is named after its role.
        fitting = (each for role in operation.roles for each in logins if each.startswith(f"{role}@"))
        first = next((f"{LOGIN}{each}" for each in (*fitting, *logins)), "")
        self._console.send(
            req,
            resp,
            "try",
            f"{method} {path}",
            plugin=plugin,
            site=site,
            method=method,
            path=path,
            operation=operation,
            inputs=inputs(group, operation, path, form),
            body=form.get("body", example.text) if example is not None else None,
            media_type=example.media_type if example is not None else "",
            accounts=sorted(logins),
            chosen=form.get("account", first),
            schemes=schemes,
            scheme=form.get("scheme", schemes[0] if schemes else ""),
            **shown,
        )

    def _sent(self, request: Outgoing, account: str) -> dict[str, Any]:
        issued = ""
        if account.startswith(LOGIN):
            issue = self._console.control.logins.get(account.removeprefix(LOGIN))
            if issue is None:
                raise falcon.HTTPBadRequest(description="There is no such demo account.")
            issued = issue()
            request = replace(request, authorization=f"Bearer {issued}")
        answer = send(self._console.host, request)
        return {
            "answer": answer,
            "number": self._console.requests.number_of(answer.request_id),
            "snippets": snippets(request, address(self._console.host, request.site, "localhost", request.scheme)),
            "issued": issued,
        }

    def replay(self, req: Request, resp: falcon.Response, number: str) -> None:
        """Send a recorded request again, with its headers and body, and redirect to the page of the new one."""
        _, record = self._console.requests.get(number)
        exchange = self._console.exchanges.of(record.arrived)
        if exchange is None or exchange.body is None:
            raise falcon.HTTPNotFound(
                description="The parts of this request were not recorded, or are no longer available."
            )
        schemes = {each.scheme for each in self._console.host.listeners if each.site == record.site}
        answer = send(
            self._console.host,
            Outgoing(
                site=record.site,
                scheme="http" if "http" in schemes else "https",
                method=record.method,
                target=record.target,
                headers={name: value for name, value in exchange.headers.items() if name not in _NOT_RESENT},
                body=exchange.body or None,
            ),
        )
        again = self._console.requests.number_of(answer.request_id)
        if again is None:
            raise falcon.HTTPServiceUnavailable(description=f"There was no response: {answer.reason}")
        resp.status = falcon.HTTP_303
        resp.location = f"{PREFIX}/requests/{again}"

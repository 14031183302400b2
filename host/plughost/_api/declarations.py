"""What plugins declare: frozen values that the host checks, mounts and takes down again.

A hook returns these. Only the host acts on them. No plugin is handed the Falcon app to change, which is what
lets the host find conflicts before anything starts and remove a plugin while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeVar

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from pydantic import BaseModel

    from plughost._api.jobs import Job
    from plughost._api.observed import RequestKind, RequestRecord
    from plughost.http._errors import ErrorFormat
    from plughost.stores._sessions import Session

E = TypeVar("E", default="Session")

JSON: tuple[str, ...] = ("application/json",)

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _problem_details() -> ErrorFormat:
    from plughost.http._errors import PROBLEM_DETAILS  # noqa: PLC0415 - brings Falcon, which not every command needs

    return PROBLEM_DETAILS


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of an operation: the API description shows it, and the host enforces it.

    A responder that names it among its arguments is given its value, converted: `page` as `page`, `If-Match` as
    `if_match`. One that takes `**values` is given all of them. A field of the path needs no declaration. One says more
    of it than that it is a string.

    Attributes:
        name: The name on the wire, such as `page` or `If-Match`. Of a path, the name of the field.
        place: Where it stands.
        description: One sentence for API clients.
        schema: Its JSON Schema: a type (`string`, `integer`, `number` as Decimal, `boolean`, or `array` of one of
            these, as a tuple), `enum`, bounds, lengths, `pattern`, and the `default` of a request without it. Of an
            array in the query, each item is a parameter of that name. Elsewhere items are joined by commas. The first
            of its `examples` is what people are offered to try. What breaks a `pattern` must be what a `description`
            beside it says, such as `three digits`; without one, the client is told the pattern.
        required: Whether a request without it is refused, and a string that is blank unless its `minLength` is 0.
            Fields of the path are always there.
        allow_empty: Whether an empty value is let through, and counts as absent.
        refusal: The status of a request that breaks the schema. 400 is the error format's status for invalid input.
            404 says that a value which breaks it names nothing, as an id that is no number does.
    """

    name: str
    place: Literal["path", "query", "header"]
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False
    allow_empty: bool = False
    refusal: Literal[400, 404] = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One possible response of an operation, as the API description shows it.

    Attributes:
        description: One sentence for API clients.
        model: The type of the body: a pydantic model, a dataclass, a `list[...]` of one. A mapping of media types to
            such types where they differ. None for no body, and for an error that the group's error format writes.
        media_types: What the body is sent as. Empty for an error without a body.
        headers: Header name to one sentence on what it means.
        schema: A JSON Schema to show instead of the one made from `model`.
        example: A body to show. By default one is made of the model and of what its fields have as examples.
    """

    description: str
    model: Any = None
    media_types: tuple[str, ...] = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    example: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one method of a route does: for the API description, and for what the host checks beforehand.

    Attributes:
        summary: One line, imperative.
        request: The model of the body, or None where no body is read.
        responses: Status to response. Errors that the host itself makes (404, 405, 406, 413, 415 ...) need no mention.
        produces: Media types of the successful answers. An `Accept` that excludes them all is answered 406.
            Empty means that `Accept` is not looked at.
        parameters: Query and header parameters, and fields of the path.
        security: Names of the HTTP authentication schemes that let a request in, any one of them. `bearer` is what the
            host's authenticator verifies. Of any other, such as `basic`, the host sees to it that credentials are
            there, and the resource verifies them. A request without is 401.
        roles: The roles of which `bearer` lets one in, any one of them. Empty for everybody. 403 for others.
        description: More than the summary, in CommonMark.
        examples: Name to an example of the request body.
        id: What generated clients call it, unique on its site, such as `listProducts`. Made of the method and the path
            by default.
        consumes: Media types of the body where it isn't JSON, such as `multipart/form-data`, `image/*`, or `*/*`
            for whatever comes. Any other is answered 415.
        body_limit: Largest request body in bytes, where it is another than the group's. What the settings say of the
            plugin is the most.
        deprecated: Since when, or from when on, it should not be used any more: a date, or a time with a zone. Every
            response says so in `Deprecation` (RFC 9745).
        sunset: When it will be gone (RFC 8594), not before `deprecated`.
        successor: The URL or path of what replaces it.
        idempotent: Whether a request with an `Idempotency-Key` that came before is answered as it was then. The plugin
            has the store `plughost.stores.idempotency_store`.
    """

    summary: str
    request: type[BaseModel] | None = None
    responses: Mapping[int, Response] = field(default_factory=dict)
    produces: tuple[str, ...] = JSON
    parameters: tuple[Parameter, ...] = ()
    security: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    description: str = ""
    examples: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    consumes: tuple[str, ...] = ()
    body_limit: int | None = None
    deprecated: date | None = None
    sunset: date | None = None
    successor: str = ""
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """A path of a group and the Falcon resource that answers it.

    Attributes:
        path: What follows the group's prefix: empty, or a Falcon URI template such as `/{sku}`. A field matches
            one segment of the raw path and arrives percent-decoded, so `%2F` is data.
        resource: An ordinary Falcon resource. HEAD follows from `on_get`, OPTIONS is answered by the host.
        operations: HTTP method to operation, one for each `on_<method>` of the resource.
        suffix: Falcon's responder suffix, where one resource serves several routes.
    """

    path: str
    resource: object
    operations: Mapping[str, Operation]
    suffix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteGroup:
    """The routes of a plugin below one prefix, with what they have in common.

    Attributes:
        prefix: Where the group is mounted, such as `/api/v1/products`. Everything below it answers in the
            group's error format, unknown paths too. `/` is for the root itself, and nothing below it.
        routes: The routes, with paths relative to the prefix.
        site: The site it is mounted on unless the settings say another.
        errors: How errors below the prefix are written.
        versions: The minor versions it speaks, as `major.minor`, oldest first (CONTRACT 2). Empty for none.
        body_limit: Largest request body in bytes unless the settings say another. None for the host's default.
        title: A heading for people. The plugin's name by default.
        described: Whether the API description shows it. Pages for people may stay out.
        realm: What the challenges of its `security` name (RFC 9110, 11.5). The plugin's name by default.
        deprecated: As of an operation, for all that say nothing of their own.
        sunset: The same.
        successor: The same.
    """

    prefix: str
    routes: tuple[Route, ...]
    site: str = "main"
    errors: ErrorFormat = field(default_factory=_problem_details)
    versions: tuple[str, ...] = ()
    body_limit: int | None = None
    title: str = ""
    described: bool = True
    realm: str = ""
    deprecated: date | None = None
    sunset: date | None = None
    successor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Generic[E]):
    """Persistent data of a plugin, opened, migrated, watched and purged by the host.

    `E` is what the operations of the store get as their first argument. See `entities`.

    Attributes:
        name: Unique on a host. Names the SQLite file and the settings key.
        migrations: The folder of numbered SQL files, `sqlite/0001_<what>.sql` and `postgresql/0001_<what>.sql`,
            such as `importlib.resources.files(__package__) / "migrations"`.
        tables: Every table that the migrations make. Two stores that claim one table are a conflict.
        entities: For stores with Pony entities: called with a fresh, bound Pony `Database` each time the store opens.
            Defines the entities on it and returns what the plugin's store operations get as their first argument, such
            as the database itself. Without it, operations get a `plughost.stores.Session`, and Pony is not imported.
        breaking: Numbers of the migrations that code of older versions can't live with. Before such a one is applied,
            the older version's requests finish or wait. Afterwards they are answered 503, and it does not serve again.
    """

    name: str
    migrations: Traversable
    tables: tuple[str, ...]
    entities: Callable[[Any], E] | None = None
    breaking: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Middleware:
    """Code that runs around requests.

    Attributes:
        name: Unique on a host. Others order themselves by it.
        component: An object with any of Falcon's `process_request(req, resp)`,
            `process_resource(req, resp, resource, params)` and
            `process_response(req, resp, resource, req_succeeded)`. With scope `plugin` it has no
            `process_request`, since which plugin a request is for is known only after routing.
        scope: Whether it runs around this plugin's own routes, around a whole site, or around every site.
        site: The site, where the scope is `site`.
        before: Names of middleware that this one runs outside of.
        after: Names of middleware that this one runs inside of.
        vary: Request headers that its work depends on. They are in the `Vary` of every response that it may touch.
    """

    name: str
    component: object
    scope: Literal["plugin", "site", "host"] = "plugin"
    site: str = "main"
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """What a health check found.

    Attributes:
        up: Whether all is well.
        data: Details for the operator. Never secrets.
    """

    up: bool
    data: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A health check of a plugin.

    Attributes:
        name: Unique on a host.
        check: Returns the health. Raising counts as down.
        kinds: The probes it belongs to.
    """

    name: str
    check: Callable[[], Health]
    kinds: frozenset[Literal["live", "ready", "started"]] = frozenset({"ready"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Is notified of requests once they were answered: to count, to bill, to keep a record.

    An observer costs a request next to nothing, and can't change it. It is called within about a second, in a thread
    of the host's, one call at a time.

    Attributes:
        name: What the log calls it.
        observe: Called with the requests that were answered since the last call, oldest first: a tuple of
            `plughost.RequestRecord`.
        at_most: How many requests at a time `observe` gets, the first ones. None for all. What is to be looked at needs
            no more than can be read, and the others then cost less.
        observe_times: Called with how long the requests since the last call took until their responses began, in
            seconds, by `plughost.RequestKind`: for counts and times, at a fraction of what `observe` costs.
        timings: Whether records have `RequestRecord.timings`, which each request pays for with some microseconds.
    """

    name: str
    observe: Callable[[tuple[RequestRecord, ...]], None] | None = None
    at_most: int | None = None
    observe_times: Callable[[Mapping[RequestKind, Sequence[float]]], None] | None = None
    timings: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a plugin in the development console.

    Attributes:
        name: Its last path segment, unique within the plugin.
        title: What the navigation shows.
        render: Returns the page's body as HTML. Called for each view.
    """

    name: str
    title: str
    render: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom an authenticator found behind a request.

    Attributes:
        name: A stable identity, such as an e-mail address.
        roles: The roles it has.
    """

    name: str
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """All that one plugin declares."""

    groups: tuple[RouteGroup, ...] = ()
    stores: tuple[Store[Any], ...] = ()
    middleware: tuple[Middleware, ...] = ()
    observers: tuple[Observer, ...] = ()
    checks: tuple[Check, ...] = ()
    jobs: tuple[Job, ...] = ()
    pages: tuple[Page, ...] = ()

    def prefixes(self) -> Iterable[str]:
        """Return the prefixes of the route groups."""
        return (group.prefix for group in self.groups)

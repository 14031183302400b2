"""What plugins declare: frozen values that the host checks, mounts and removes again.

Hooks return them, and only the host acts on them. No plugin can change the Falcon app. So the host finds conflicts
before anything starts, and can remove a plugin while it runs.
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

    from plughost._api.events import RequestKind, RequestRecord
    from plughost._api.jobs import Job
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

    A responder gets the converted value as an argument of that name: `page` as `page`, `If-Match` as `if_match`. With
    `**values` it gets all of them. A path field without a declaration is a string.

    Attributes:
        name: The name on the wire, such as `page` or `If-Match`. In a path, the name of the field.
        place: Where it is sent.
        description: One sentence for API clients.
        schema: Its JSON Schema: a type (`string`, `integer`, `number` as Decimal, `boolean`, or `array` of one of
            these, as a tuple), `enum`, bounds, lengths, `pattern`, a string's `format` (`date`, `date-time` or `uuid`,
            of Python's type), and the `default` of a request without it. In the query, each item of an array is a
            parameter of that name. Elsewhere items are joined by commas. The first of its `examples` is offered to
            people to try. A `description` beside a `pattern` completes the error "must be", such as `three digits`.
            Without one, the client is told the pattern.
        required: Whether a request without it is refused. So is a blank string, unless its `minLength` is 0. Fields of
            the path are always present.
        allow_empty: Whether an empty value is accepted and counts as absent.
        refusal: The status of a request that breaks the schema. 400 is the error format's status for invalid input.
            404 means that such a value names nothing, like an id that is not a number.
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
            such types if they differ. None for no body, and for an error, which the group's error format renders.
        media_types: The media types of the body. Empty for an error without a body.
        headers: Header name to one sentence on its meaning.
        schema: A JSON Schema to show instead of the one made from `model`.
        example: A body to show. By default one is made from the model and its fields' examples.
    """

    description: str
    model: Any = None
    media_types: tuple[str, ...] = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    example: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What one method of a route does, for the API description and for the host's checks.

    Attributes:
        summary: One line, imperative.
        request: The model of the body, or None if no body is read.
        responses: Status to response. The host's own errors (404, 405, 406, 413, 415 ...) need no mention.
        produces: Media types of the successful responses. An `Accept` that excludes them all gets 406. If empty, or if
            no successful response has a body, `Accept` is ignored.
        parameters: Query and header parameters, and fields of the path.
        security: Names of HTTP authentication schemes, any one of which admits a request. The host's authenticator
            verifies `bearer`. For any other, such as `basic`, the host only requires credentials, and the resource
            verifies them. A request without credentials gets 401.
        roles: With `bearer`, the roles that are admitted, any one of them. Others get 403. Empty for everybody.
        description: More than the summary, in CommonMark.
        examples: Name to an example of the request body.
        id: Its name in generated clients, unique on its site, such as `listProducts`. Made from the method and the path
            by default.
        consumes: Media types of the body if it isn't JSON, such as `multipart/form-data`, `image/*`, or `*/*` for any.
            Others get 415.
        body_limit: Largest request body in bytes, if it differs from the group's. The plugin's setting is the upper
            bound.
        deprecated: The past or future moment from which it should not be used: a date, or a time with a zone. Every
            response has it in `Deprecation` (RFC 9745).
        sunset: When it will be removed (RFC 8594), not before `deprecated`.
        successor: The URL or path of its replacement.
        idempotent: Whether a repeated request with the same `Idempotency-Key` gets the first one's response. The plugin
            needs the store `plughost.stores.idempotency_store`.
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
    """A path of a group and its Falcon resource.

    Attributes:
        path: What follows the group's prefix: empty, or a Falcon URI template such as `/{sku}`. A field matches
            one segment of the raw path and arrives percent-decoded, so `%2F` is data.
        resource: An ordinary Falcon resource. `on_get` also serves HEAD. The host answers OPTIONS.
        operations: HTTP method to operation, one for each `on_<method>` of the resource.
        suffix: Falcon's responder suffix, if one resource serves several routes.
    """

    path: str
    resource: object
    operations: Mapping[str, Operation]
    suffix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteGroup:
    """The routes of a plugin below one prefix, and their common properties.

    Attributes:
        prefix: Where the group is mounted, such as `/api/v1/products`. All errors below it, also for unknown paths,
            are in the group's error format. `/` is for the root itself, and nothing below it.
        routes: The routes, with paths relative to the prefix.
        site: The site it is mounted on unless the settings name another.
        errors: The format of errors below the prefix.
        versions: The minor versions it serves, as `major.minor`, oldest first (CONTRACT 2). Empty for none.
        body_limit: Largest request body in bytes unless the settings set another. None for the host's default.
        title: A heading for people. The plugin's name by default.
        described: Whether the API description shows it. Pages for people may stay out.
        realm: The realm of its authentication challenges (RFC 9110, 11.5). The plugin's name by default.
        deprecated: As in `Operation`, for operations that don't set it.
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
    """Persistent data of a plugin, opened, migrated, monitored and purged by the host.

    `E` is the type of the first argument of the store's operations. See `entities`.

    Attributes:
        name: Unique on a host, where `-` and `_` are alike. Names the SQLite file and the settings key.
        migrations: The folder of numbered SQL files, `sqlite/0001_<what>.sql` and `postgresql/0001_<what>.sql`,
            such as `importlib.resources.files(__package__) / "migrations"`.
        tables: Every table that the migrations make. Two stores that claim one table are a conflict.
        entities: For stores with Pony entities: called with a fresh, bound Pony `Database` each time the store opens.
            Defines the entities on it and returns the first argument of the store's operations, such as the database
            itself. Without it, operations get a `plughost.stores.Session`, and Pony is not imported.
        breaking: Numbers of the migrations that older versions' code can't work with. Before one is applied, the older
            version's requests finish or wait. Afterwards they get 503, and that version does not serve again.
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
            `process_request`, since a request's plugin is known only after routing.
        scope: Whether it runs around this plugin's own routes, around a whole site, or around every site.
        site: The site, where the scope is `site`.
        before: Names of middleware that run inside this one.
        after: Names of middleware that run outside this one.
        vary: Request headers that it depends on. They are in the `Vary` of every response that it may change.
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
    """The result of a health check.

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
        check: Returns the health. An exception counts as down.
        kinds: The probes it belongs to: `live`, `ready` or `started`. If empty, only `/q/health` shows it, so load
            balancers go on sending requests while it is down.
    """

    name: str
    check: Callable[[], Health]
    kinds: frozenset[Literal["live", "ready", "started"]] = frozenset({"ready"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Is notified of answered requests: to count, bill or record them.

    An observer costs a request next to nothing, and can't change it. It is called within about a second, in a new
    thread for each call, one call at a time. While a call takes longer than `hook_timeout`, the observer gets no
    requests.

    Attributes:
        name: Its name in the log.
        observe: Called with the requests that were answered since the last call, oldest first: a tuple of
            `plughost.RequestRecord`.
        at_most: How many requests `observe` gets per call, the first ones. None for all. A display needs no more than
            people can read, and the other requests then cost less.
        observe_times: Called with the seconds until each response since the last call began, by
            `plughost.RequestKind`: for counts and durations, at a fraction of the cost of `observe`.
        timings: Whether records have `RequestRecord.timings`, which cost each request some microseconds.
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
    """Who makes a request, as the authenticator found.

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

"""The description contains a third party's declarations, and what the host adds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
from openapi_spec_validator import validate
from pydantic import BaseModel

import plughost_openapi.plugin
from plughost import Operation, Response, Route, RouteGroup, hookimpl
from plughost.http import File, Upload
from plughost.testing import RunningHost, plugin_distribution, running_host

if TYPE_CHECKING:
    import falcon

Description = dict[str, Any]


def _parameters(description: Description, operation: Description) -> dict[str, Description]:
    shared = description["components"]["parameters"]
    found = [shared[each["$ref"].rpartition("/")[2]] if "$ref" in each else each for each in operation["parameters"]]
    return {each["name"]: each for each in found}


def _response(description: Description, operation: Description, status: int) -> Description:
    found: Description = operation["responses"][str(status)]
    return description["components"]["responses"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found


def test_it_is_valid_openapi(library: Description) -> None:
    """The specification's validator finds no error."""
    assert library["openapi"] == "3.1.0"
    validate(library)


def test_every_operation_is_described(library: Description) -> None:
    """Each path, in OpenAPI's notation, has exactly the methods that the plugin declares."""
    assert {path: set(item) for path, item in library["paths"].items()} == {
        "/notes": {"get", "post"},
        "/notes/{id}": {"get", "delete"},
        "/shouts/{when}/x-{rest}": {"put"},
    }


def test_operation_ids_are_unique_and_meaningful(library: Description) -> None:
    """The default is made of method and path, so generated clients' functions keep their names."""
    ids = [operation["operationId"] for item in library["paths"].values() for operation in item.values()]
    assert ids == [
        "listNotes",
        "createNotes",
        "getNotesById",
        "deleteNotesById",
        "updateShoutsByWhenXRest",
    ]


def test_models_have_their_true_bounds_and_their_docstrings(library: Description) -> None:
    """The request's schema is the one that the host checks, and a docstring's Attributes describe the members."""
    draft = library["components"]["schemas"]["NoteDraft"]
    text, weight, price = (draft["properties"][name] for name in ("text", "weight", "price"))
    assert draft["description"] == "A note to take."
    assert (text["maxLength"], text["description"]) == (40, "What to remember, in your own words.")
    assert (weight["minimum"], weight["maximum"], weight["format"]) == (0, 2**40, "int64")
    assert (price["exclusiveMaximum"], price["x-fraction-digits"], "multipleOf" in price) == (1000, 2, False)
    body = library["paths"]["/notes"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/NoteDraft"}
    assert body["examples"]["a-thought"]["value"]["text"] == "1e3"


def test_fields_of_the_path_are_parameters(library: Description) -> None:
    """A declared field is as declared, with its example; another has its converter's type."""
    declared = _parameters(library, library["paths"]["/notes/{id}"]["get"])["id"]
    assert (declared["required"], declared["example"], declared["description"]) == (True, 7, "Its number.")
    assert declared["schema"]["format"] == "int64"
    assert _parameters(library, library["paths"]["/notes/{id}"]["delete"])["id"]["schema"]["type"] == "string"
    converted = _parameters(library, library["paths"]["/shouts/{when}/x-{rest}"]["put"])
    assert (converted["when"]["schema"]["type"], converted["rest"]["schema"]["type"]) == ("integer", "string")


def test_headers_and_queries_are_parameters(library: Description) -> None:
    """This includes declared parameters, the request id, and the supported minor versions."""
    found = _parameters(library, library["paths"]["/notes"]["get"])
    assert found["page"]["schema"] == {"type": "integer", "minimum": 0}
    assert found["API-Version"]["schema"] == {"$ref": "#/components/schemas/APIVersion1_0Or1_1"}
    assert library["components"]["schemas"]["APIVersion1_0Or1_1"]["enum"] == ["1.0", "1.1", "1"]
    assert found["X-Request-ID"]["in"] == "header"
    assert "API-Version" not in _parameters(library, library["paths"]["/shouts/{when}/x-{rest}"]["put"])


@pytest.mark.parametrize(
    ("path", "method", "statuses"),
    [
        ("/notes", "get", {200, 400, 406, 413, 429, 500, 503}),
        ("/notes", "post", {201, 400, 401, 403, 406, 409, 413, 415, 429, 500, 503}),
        ("/notes/{id}", "delete", {204, 400, 403, 404, 413, 429, 500, 503}),
        ("/shouts/{when}/x-{rest}", "put", {400, 403, 404, 406, 409, 413, 422, 429, 500, 503}),
    ],
)
def test_the_hosts_own_errors_are_added(library: Description, path: str, method: str, statuses: set[int]) -> None:
    """An operation lists its declared answers, and the host's possible answers to its requests."""
    assert {int(status) for status in library["paths"][path][method]["responses"]} == statuses


def test_errors_are_in_the_format_of_their_group(library: Description) -> None:
    """A format with a type has its schema, another one its media type; each has its own example."""
    post, put = library["paths"]["/notes"]["post"], library["paths"]["/shouts/{when}/x-{rest}"]["put"]
    problem = _response(library, post, 415)["content"]["application/problem+json"]
    assert problem["schema"] == {"$ref": "#/components/schemas/ProblemDetails"}
    assert problem["example"]["status"] == 415
    shout = _response(library, put, 404)["content"]["application/vnd.shout+json"]
    assert shout["example"] == {"oh": "THERE IS NOTHING AT THIS ADDRESS."}
    assert _response(library, post, 409)["content"].keys() == {"application/problem+json"}
    assert "content" not in _response(library, library["paths"]["/notes/{id}"]["get"], 404)
    assert "Retry-After" in _response(library, post, 429)["headers"]
    assert "WWW-Authenticate" in _response(library, post, 401)["headers"]


def test_answers_have_a_schema_for_each_media_type(library: Description) -> None:
    """If a resource has several representations, each media type shows its own."""
    content = _response(library, library["paths"]["/notes/{id}"]["get"], 200)["content"]
    assert {name: each["schema"]["$ref"].rpartition("/")[2] for name, each in content.items()} == {
        "application/json": "Note",
        "application/hal+json": "Linked",
    }


def test_security_schemes_are_alternatives(library: Description) -> None:
    """Each scheme of an operation is sufficient, and only used schemes are defined."""
    assert library["paths"]["/notes"]["post"]["security"] == [{"basic": []}, {"bearer": []}]
    schemes = library["components"]["securitySchemes"]
    assert {name: each["scheme"] for name, each in schemes.items()} == {"basic": "basic", "bearer": "bearer"}
    assert "security" not in library["paths"]["/notes"]["get"]


def test_a_tag_for_each_plugin_and_a_server_for_each_listener(host: RunningHost, library: Description) -> None:
    """Tags name the distribution; servers are the listeners from the reader's view, with its own scheme first."""
    assert library["tags"] == [{"name": "notes", "description": "Notes (plughost-notes 1.0)"}]
    ports = host.port("library"), host.port("library", "https")
    assert [each["url"] for each in library["servers"]] == [
        f"http://127.0.0.1:{ports[0]}",
        f"https://127.0.0.1:{ports[1]}",
    ]


def test_idempotent_operations_are_described(library: Description) -> None:
    """They accept a key; their answers, errors too, have a header that marks a repetition."""
    put = library["paths"]["/shouts/{when}/x-{rest}"]["put"]
    key = _parameters(library, put)["Idempotency-Key"]
    assert (key["in"], key.get("required")) == ("header", None)
    assert {"409", "422", "503"} <= put["responses"].keys()
    assert all("Idempotency-Replayed" in _response(library, put, int(status))["headers"] for status in put["responses"])
    assert "Idempotency-Key" not in _parameters(library, library["paths"]["/notes"]["get"])


def test_deprecations_are_described(library: Description) -> None:
    """Each answer of a deprecated operation, errors too, has the headers that the host adds; others have none."""
    put, get = library["paths"]["/shouts/{when}/x-{rest}"]["put"], library["paths"]["/notes"]["get"]
    future = {"Deprecation", "Sunset", "Link"}
    assert all(future <= _response(library, put, int(status))["headers"].keys() for status in put["responses"])
    assert not any(future & _response(library, get, int(status))["headers"].keys() for status in get["responses"])


class Entry(BaseModel):
    """A form with files."""

    picture: Annotated[Upload, File(media_types=("image/png", "image/jpeg"))]
    more: list[Annotated[Upload, File(max_size=9, media_types=("text/plain",))]] = []
    other: Upload | None = None


class Uploads:
    """Takes a form, or a body that it reads itself."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Nobody calls it."""

    def on_put(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Nobody calls it."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Nobody calls it."""

    @hookimpl
    def register_routes(self) -> list[RouteGroup]:
        """Mount all."""
        done = {204: Response(description="Done.")}
        video = Response(description="The video.", model=bytes, media_types=("video/mp4",))
        operations = {
            "POST": Operation(summary="Fill in", request=Entry, consumes=("multipart/form-data",), responses=done),
            "PUT": Operation(summary="Upload", consumes=("video/mp4",), produces=(), responses=done),
            "GET": Operation(summary="Play", produces=("video/mp4",), responses={200: video}),
        }
        return [RouteGroup(prefix="/uploads", routes=(Route("", self, operations),))]


def test_uploads_are_described() -> None:
    """A body of bytes is described by its media types, without an example, as is each file of a form."""
    plugins = [plugin_distribution("openapi", plughost_openapi.plugin), plugin_distribution("uploads", Uploads())]
    with running_host(distributions=plugins, strict=True) as host, host.client() as client:
        description: Description = client.get("/q/openapi?format=json").json()
    validate(description)
    post, put, get = (description["paths"]["/uploads"][method] for method in ("post", "put", "get"))
    assert post["requestBody"]["content"]["multipart/form-data"]["encoding"] == {
        "picture": {"contentType": "image/png, image/jpeg"},
        "more": {"contentType": "text/plain"},
    }
    video = {"video/mp4": {"schema": {"type": "string", "format": "binary"}}}
    assert put["requestBody"] == {"required": True, "content": video}
    assert get["responses"]["200"]["content"] == video
    assert "415" in put["responses"]

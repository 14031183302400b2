"""The description of all plugins together."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import yaml
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

if TYPE_CHECKING:
    from plughost.testing import RunningHost


def test_every_site_is_described_by_valid_openapi(host: RunningHost, site: str) -> None:
    """The validator of the specification finds no fault, and YAML and JSON are equal."""
    with host.client() as client:
        as_json = client.get(f"/q/openapi?site={site}&format=json").json()
        as_yaml = yaml.safe_load(client.get(f"/q/openapi?site={site}").text)
    validate(as_json)
    assert as_yaml == as_json


def test_every_mounted_operation_is_described(host: RunningHost, site: str) -> None:
    """Every method of every described route is an operation with its plugin's tag and a unique id."""
    with host.client() as client:
        paths = client.get(f"/q/openapi?site={site}&format=json").json()["paths"]
    operations = [operation for item in paths.values() for operation in item.values()]
    groups = [(plugin, group) for plugin, group in host.host.view.sites[site].groups if group.described]
    mounted = Counter(plugin for plugin, group in groups for route in group.routes for _ in route.operations)
    assert Counter(operation["tags"][0] for operation in operations) == mounted
    assert max(Counter(operation["operationId"] for operation in operations).values()) == 1


def test_members_that_responses_may_lack_have_no_default(host: RunningHost, site: str) -> None:
    """Generators take a response's member with a default for always present; null is only what a service sends."""
    with host.client() as client:
        document = client.get(f"/q/openapi?site={site}&format=json").json()
    schemas = document["components"]["schemas"]
    defaults = {
        (name, member)
        for name, schema in schemas.items()
        for member, each in schema.get("properties", {}).items()
        if "default" in each and member not in schema.get("required", ())
    }
    assert defaults == set()
    for name, member in (("ProblemDetails", "violations"), ("ErrorEnvelope", "errors"), ("ProfileEnvelope", "message")):
        if name in schemas:
            assert schemas[name]["properties"][member]["type"] in ("array", "string")
            assert member not in schemas[name]["required"]


def test_integers_beyond_32_bits_have_the_format_for_it(host: RunningHost) -> None:
    """Without it, clients for Go don't compile, and clients for Java fail at times in milliseconds."""
    with host.client() as client:
        document = client.get("/q/openapi?format=json").json()
    number = document["paths"]["/messages/{message_id}"]["get"]["parameters"][0]["schema"]
    time = document["components"]["schemas"]["ProfileEnvelope"]["properties"]["timestamp"]
    assert (number["format"], time["format"]) == ("int64", "int64")


def test_the_example_of_every_body_works(host: RunningHost) -> None:
    """The first example of each operation with a body is accepted unchanged."""
    with host.client() as client:
        description = client.get("/q/openapi?format=json").json()
        responses = {}
        operations = ((path, *each) for path, item in description["paths"].items() for each in item.items())
        for path, method, operation in operations:
            for media in operation.get("requestBody", {"content": {}})["content"].values():
                example = next(iter(media["examples"].values()))["value"]
                url = _address(path, operation)
                responses[f"{method} {path}"] = client.request(method, url, json=example).status_code
    assert len(responses) >= 7
    assert {name: status for name, status in responses.items() if status not in (200, 201, 204, 409)} == {}


def test_every_operation_has_a_description_and_examples(host: RunningHost, site: str) -> None:
    """Each operation says what it does, and each response with a body, errors too, has an example."""
    with host.client() as client:
        document = client.get(f"/q/openapi?site={site}&format=json").json()
    shared = document["components"]["responses"]
    bare = []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for status, response in operation["responses"].items():
                written = shared[response["$ref"].rpartition("/")[2]] if "$ref" in response else response
                examples = ["example" in media for media in written.get("content", {}).values()]
                if not (operation.get("description") and written["description"] and all(examples)):
                    bare.append(f"{method} {path} {status}")
    assert bare == []


def _address(path: str, operation: dict[str, Any]) -> str:
    """Return the path of an operation, with the example of each field."""
    fields = {each["name"]: str(each["example"]) for each in operation["parameters"] if each.get("in") == "path"}
    return path.format_map(fields)


def test_every_media_type_has_its_described_schema(host: RunningHost) -> None:
    """A list's answer in each JSON media type has that media type's schema."""
    checked = set()
    with host.client() as client:
        assert client.post("/products", json={"sku": "HAL", "name": "x", "price": 19.99, "stock": 1}).status_code == 201
        description = json.loads(client.get("/q/openapi?format=json").text, parse_float=Decimal)
        for path, item in description["paths"].items():
            if "get" not in item or "{" in path:
                continue
            for media_type, media in item["get"]["responses"]["200"]["content"].items():
                if media_type.endswith("json"):
                    answer = client.get(path, headers={"Accept": media_type})
                    schema = {**media["schema"], "components": description["components"]}
                    Draft202012Validator(schema).validate(json.loads(answer.text, parse_float=Decimal))
                    checked.add(media_type)
    assert checked >= {"application/json", "application/hal+json"}

"""Generate examples of responses from their schemas. Examples in the schema take precedence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_REF: Final = "#/components/schemas/"
_FORMATS: Final = {
    "date-time": "2026-11-22T17:30:00Z",
    "date": "2026-11-22",
    "time": "17:30:00Z",
    "email": "user@example.org",
    "uri": "https://api.example.org/",
    "uuid": "8f14e45f-ceea-4672-a8b1-0c2d3f4e5a6b",
}
_MAX_DEPTH: Final = 8


def example_of(schema: Mapping[str, Any], components: Mapping[str, Mapping[str, Any]], depth: int = 0) -> Any:
    """Return a value that a JSON Schema of pydantic allows, or None if no simple one is found.

    `components` are the schemas that it can refer to. `depth` bounds recursive models.
    """
    if depth > _MAX_DEPTH:
        return None
    if "$ref" in schema:
        return example_of(components.get(schema["$ref"].removeprefix(_REF), {}), components, depth + 1)
    values = (
        *schema.get("examples", ())[:1],
        schema.get("const"),
        schema.get("default"),
        *schema.get("enum", ())[:1],
    )
    for each in values:
        if each is not None:
            return each
    for key in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(key, ()):
            if (example := example_of(each, components, depth + 1)) is not None:
                return example
    return _of_type(schema, components, depth)


def _of_type(schema: Mapping[str, Any], components: Mapping[str, Mapping[str, Any]], depth: int) -> Any:
    kind = schema.get("type")
    if kind == "object":
        return _object(schema, components, depth)
    if kind == "array":
        item = example_of(schema.get("items", {}), components, depth + 1)
        return [] if item is None else [item] * max(1, schema.get("minItems", 0))
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
        return low + 1 if "exclusiveMinimum" in schema else low
    if kind == "boolean":
        return True
    if kind == "string" and "pattern" not in schema:
        return _FORMATS.get(schema.get("format", ""), "text".ljust(schema.get("minLength", 0), "."))
    return None


def _object(schema: Mapping[str, Any], components: Mapping[str, Mapping[str, Any]], depth: int) -> Any:
    example = {}
    for name, each in schema.get("properties", {}).items():
        value = example_of(each, components, depth + 1)
        if value is not None:
            example[name] = value
        elif name in schema.get("required", ()):
            if not any(one.get("type") == "null" for one in each.get("anyOf", ())):
                return None
            example[name] = None
    return example

"""JSON Schemas of the models of operations, with a unique name for each model on a site."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema

Schema = dict[str, Any]
Mode = Literal["validation", "serialization"]
Use = tuple[Any, Mode]

_REF: Final = "#/components/schemas/"
_MAX_INT32: Final = 2**31 - 1
_IN_MODULE: Final = re.compile(r"(?P<package>[a-z0-9_]+?)__(?:[a-z0-9_]+?__)*(?P<model>[A-Z]\w*(?:-\w+)?)")
_ATTRIBUTES: Final = re.compile(r"\n\s*Attributes:\n(?P<lines>(?:[ \t]+\S.*\n?|\s*\n)*)")
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+):[ ]?(.*(?:\n {5,}.*)*)", re.MULTILINE)


class _Generator(GenerateJsonSchema):
    """Leaves out the titles of members, which only repeat their names, and shows sent Decimals as numbers."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        """Pydantic would send a string; `plughost.http.encode` writes a number."""
        return {"type": "number"} if self.mode == "serialization" else super().decimal_schema(schema)


class Schemas:
    """The schemas of some models. `components` is the content of the description's `components.schemas`."""

    def __init__(self, uses: Iterable[Use]) -> None:
        """Generate the schemas of models that are read (`validation`) or sent (`serialization`).

        A model that pydantic can't describe gets the empty schema, which allows any value.
        """
        adapters = {use: adapter for use in dict.fromkeys(uses) if (adapter := _adapter(*use)) is not None}
        keys = {use: number for number, use in enumerate(adapters)}
        found, definitions = TypeAdapter.json_schemas(
            [(keys[use], use[1], adapter) for use, adapter in adapters.items()],
            ref_template=f"{_REF}{{model}}",
            schema_generator=_Generator,
        )
        components = definitions.get("$defs", {})
        names = _names(components)
        self.components: dict[str, Schema] = {
            names[name]: _described(_renamed(schema, names), names[name])
            for name, schema in sorted(components.items(), key=lambda item: names[item[0]])
        }
        self._schemas: dict[Use, Schema] = {use: _renamed(found[keys[use], use[1]], names) for use in adapters}

    def of(self, model: Any, mode: Mode) -> Schema:
        """Return the schema of a model, usually a reference to a component."""
        return self._schemas.get((model, mode), {})


def _adapter(model: Any, mode: Mode) -> TypeAdapter[Any] | None:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(model)
        adapter.json_schema(mode=mode)
    except (PydanticUserError, PydanticInvalidForJsonSchema):
        return None
    return adapter


def _names(components: Mapping[str, Schema]) -> dict[str, str]:
    """Map pydantic's name of each component to its public name, the title.

    If different models share a title, the package's name is put before it: pydantic's `plughost_notes__plugin__Note`
    becomes `NotesNote`. If a model is read and sent in different shapes, pydantic's `Note-Input` and `Note-Output`
    become `NoteInput` and `NoteOutput`. Models with the same title and the same schema become one component.
    """
    titled: dict[str, list[str]] = {}
    for long, schema in components.items():
        titled.setdefault(_pascal(schema.get("title", long)), []).append(long)
    names: dict[str, str] = {}
    for title, group in titled.items():
        same = all(components[each] == components[group[0]] for each in group)
        for long in group:
            path = _IN_MODULE.fullmatch(long)
            shape = long.rpartition("-")[2] if long.endswith(("-Input", "-Output")) else ""
            owner = path["package"].removeprefix("plughost_") if path else ""
            other = _pascal(f"{owner}_{title}_{shape}") if owner or shape else _pascal(long)
            names[long] = title if same else other if other not in names.values() else _pascal(long)
    return names


def _pascal(words: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", words))


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """Return a schema with the public names in its references, and formats of integers."""
    if isinstance(schema, list):
        return [_renamed(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {
        key: f"{_REF}{names[value.removeprefix(_REF)]}"
        if key == "$ref" and isinstance(value, str) and value.startswith(_REF)
        else _renamed(value, names)
        for key, value in schema.items()
    }
    return with_int64(renamed)


def with_int64(schema: Schema) -> Schema:
    """Return a schema with the format int64 if it is of integers that don't fit 32 bits.

    Client generators choose a type by it. Its bounds and examples tell how large the integers are.
    """
    if isinstance(schema.get("items"), dict):
        schema = {**schema, "items": with_int64(schema["items"])}
    if schema.get("type") != "integer":
        return schema
    known = (schema.get("minimum"), schema.get("maximum"), *schema.get("examples", ()))
    is_large = any(isinstance(each, int) and abs(each) > _MAX_INT32 for each in known)
    return {"format": "int64", **schema} if is_large else schema


def _described(schema: Schema, name: str) -> Schema:
    """Return a component with descriptions of its members from the docstring's section `Attributes` (Google style)."""
    found = _ATTRIBUTES.search(schema.get("description", ""))
    if found:
        properties = schema.get("properties", {})
        for attribute, text in _ATTRIBUTE.findall(found["lines"]):
            if attribute in properties:
                properties[attribute].setdefault("description", " ".join(text.split()))
        schema["description"] = (schema["description"][: found.start()]).strip()
    return {**schema, "title": name} if "title" in schema else schema

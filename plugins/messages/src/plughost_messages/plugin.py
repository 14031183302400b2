"""The message service: list, read, create and delete (SPEC Message service, CONTRACT 6)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import falcon
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from plughost import Operation, Parameter, Response, Route, RouteGroup, Store, hookimpl
from plughost.http import MAX_ID, Integer, Text, read_body, send_array
from plughost_messages.store import MAX_LENGTH, STORE, Messages

if TYPE_CHECKING:
    from plughost import PluginContext
    from plughost.http import Request

PREFIX: Final = "/messages"

Content = Annotated[str, Text(max_length=MAX_LENGTH, blank=True)]


# Not the format date-time, which requires a time zone (RFC 3339).
LocalTime = Annotated[
    datetime,
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time-local",
            "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?$",
            "description": "The server's local time, without zone.",
            "examples": ["2026-11-22T17:30:00"],
        }
    ),
]


class MessageDraft(BaseModel):
    """A message as a client sends it; it may be empty."""

    content: Content = Field(examples=["Hello, world"])


class MessageJSON(BaseModel):
    """A message as clients see it."""

    model_config = ConfigDict(title="Message")

    id: Annotated[int, Integer(minimum=1, maximum=MAX_ID)]
    content: Content = Field(examples=["Hello, world"])
    createdAt: LocalTime  # noqa: N815 - the name in JSON


class AllMessages:
    """The resource of all messages."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        """List all messages."""
        send_array(resp, self._messages.batches())

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        """Create a message."""
        message = self._messages.create(read_body(req, MessageDraft).content)
        resp.status = falcon.HTTP_201
        resp.location = f"{PREFIX}/{message.id}"
        resp.media = message


class OneMessage:
    """The resource of one message. A missing message is a 404 without a body (SPEC Errors)."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    def on_get(self, req: Request, resp: falcon.Response, message_id: int) -> None:
        """Return the message."""
        message = self._messages.get(message_id)
        if message is None:
            resp.status = falcon.HTTP_404
        else:
            resp.media = message

    def on_delete(self, req: Request, resp: falcon.Response, message_id: int) -> None:
        """Delete the message."""
        resp.status = falcon.HTTP_204 if self._messages.delete(message_id) else falcon.HTTP_404


_ID: Final = Parameter(
    name="message_id",
    place="path",
    description="The message's id.",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_ID, "examples": [1]},
    refusal=404,
)
_NOT_FOUND: Final = Response(description="No message has this id; the body is empty.", media_types=())
_LIST: Final = Operation(
    id="listMessages",
    description="All messages in one array, sorted by id.",
    summary="List all messages",
    responses={200: Response(description="The messages by id.", model=list[MessageJSON])},
)
_CREATE: Final = Operation(
    id="createMessage",
    description="The service sets the id and the time; ids are never reused.",
    summary="Create a message",
    request=MessageDraft,
    responses={
        201: Response(
            description="The new message.",
            model=MessageJSON,
            headers={"Location": "The path of the new message."},
        ),
        400: Response(description="The body is not JSON or not valid: `violations` names each invalid field."),
    },
    examples={"a greeting": {"content": "Hello, world"}, "nothing to say": {"content": ""}},
)
_GET: Final = Operation(
    id="getMessage",
    description="The message, or an empty 404.",
    summary="Get a message by its id",
    responses={200: Response(description="The message.", model=MessageJSON), 404: _NOT_FOUND},
    parameters=(_ID,),
)
_DELETE: Final = Operation(
    id="deleteMessage",
    description="It can't be undone; deleting it again is an empty 404.",
    summary="Delete a message by its id",
    responses={204: Response(description="The message was deleted."), 404: _NOT_FOUND},
    parameters=(_ID,),
)


@hookimpl
def register_stores(context: PluginContext[Any]) -> list[Store]:
    """Declare the store `messages`."""
    return [STORE]


@hookimpl
def register_routes(context: PluginContext[Any]) -> list[RouteGroup]:
    """Mount the service at `/messages`."""
    messages = Messages(context.store(STORE))
    routes = (
        Route("", AllMessages(messages), {"GET": _LIST, "POST": _CREATE}),
        Route("/{message_id}", OneMessage(messages), {"GET": _GET, "DELETE": _DELETE}),
    )
    return [RouteGroup(prefix=PREFIX, routes=routes, versions=("1.0",), title="Messages")]

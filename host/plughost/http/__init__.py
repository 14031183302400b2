"""HTTP for plugin authors, in addition to Falcon: requests, errors, negotiation and JSON.

A resource reads a JSON body in one line and responds through `resp.media`:

    draft = read_body(req, ProductDraft)

(`send_array` for a list of any length). The model states the rules once, for validation and for the API description:

    class ProductDraft(BaseModel):
        sku: Annotated[str, Text(max_length=255)]
        price: Annotated[Decimal, Number(minimum=0, integer_digits=11, fraction_digits=4)]
        note: Annotated[str | None, Text(max_length=500, blank=True)] = absent()
"""

from __future__ import annotations

from plughost.http._errors import (
    PLAIN_TEXT,
    PROBLEM_DETAILS,
    DescribedErrorFormat,
    ErrorFormat,
    Invalid,
    PlainText,
    Problem,
    ProblemDetails,
    Violation,
)
from plughost.http._events import EventChannel, ServerSentEvent, send_events
from plughost.http._files import send_file
from plughost.http._forms import File, Upload, read_form
from plughost.http._json.codec import MalformedJSON, decode, encode, read_body, read_json, send_array
from plughost.http._json.fields import Boolean, Choice, Integer, Number, Text, absent
from plughost.http._json.validation import validate
from plughost.http._paging import Page, Paging
from plughost.http._preconditions import check_preconditions
from plughost.http._request import Request, principal_of, secure_url
from plughost.http._response import preferred
from plughost.http._routing import MAX_ID, parse_id

__all__ = [
    "MAX_ID",
    "PLAIN_TEXT",
    "PROBLEM_DETAILS",
    "Boolean",
    "Choice",
    "DescribedErrorFormat",
    "ErrorFormat",
    "EventChannel",
    "File",
    "Integer",
    "Invalid",
    "MalformedJSON",
    "Number",
    "Page",
    "Paging",
    "PlainText",
    "Problem",
    "ProblemDetails",
    "Request",
    "ServerSentEvent",
    "Text",
    "Upload",
    "Violation",
    "absent",
    "check_preconditions",
    "decode",
    "encode",
    "parse_id",
    "preferred",
    "principal_of",
    "read_body",
    "read_form",
    "read_json",
    "secure_url",
    "send_array",
    "send_events",
    "send_file",
    "validate",
]

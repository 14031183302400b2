"""The operations for the API description."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from plughost import Operation, Parameter, Response
from plughost.http import MAX_ID, Paging
from plughost_catalog_core import ProductDraft
from plughost_catalog_crud.hal import HAL, JSON
from plughost_catalog_store import FIELDS, ProductJSON

FORMATS: Final = (JSON, HAL)
_EXAMPLES: Final = {"a teapot": {"sku": "POT-1", "name": "Teapot", "price": 19.99, "stock": 3}}


class Link(BaseModel):
    """An absolute URL."""

    href: str


class ProductHAL(ProductJSON):
    """A product with links to its operations."""

    model_config = ConfigDict(title="ProductHAL")

    links: dict[str, Link] = Field(alias="_links")


class ProductsHAL(BaseModel):
    """The products of a list in HAL."""

    product: list[ProductHAL]


class PageHAL(BaseModel):
    """A page of products with links to other pages."""

    embedded: ProductsHAL = Field(alias="_embedded")
    links: dict[str, Link] = Field(alias="_links")


_PRODUCT: Final = {JSON: ProductJSON, HAL: ProductHAL}


PAGING: Final = Paging(model=ProductJSON, sort=FIELDS, filters=FIELDS[1:], refusal=404)
_ID: Final = Parameter(
    name="product_id",
    place="path",
    description="The product's id.",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_ID, "examples": [1]},
    refusal=404,
)
_IF_MATCH: Final = Parameter(
    name="If-Match",
    place="header",
    description="Proceed only if the product's ETag is one of these; `*` matches any product.",
)
_IF_NONE_MATCH: Final = Parameter(
    name="If-None-Match", place="header", description="Proceed only if the product's ETag is none of these."
)
_PROBLEM: Final = "`detail` says what is wrong."
_ENTITY_HEADERS: Final = {"ETag": "Identifies the product's current state.", "Vary": "Accept."}
_CREATED: Final = Response(
    description="The product as it was created.",
    model=_PRODUCT,
    headers={"Location": "The absolute address of the new product.", **_ENTITY_HEADERS},
)
_INVALID: Final = Response(description="The body is not JSON or not valid: `violations` names each invalid field.")
_TAKEN: Final = Response(description="Another product has this SKU.")
_NOT_FOUND: Final = Response(description="No product has this id.")
_FAILED_PRECONDITION: Final = Response(description="The precondition fails, or there is no such product.")

LIST: Final = Operation(
    id="listProducts",
    description="Sorted by id unless `sort` is given. `Link`, like HAL's `_links`, leads to the other pages.",
    summary="List products, a page at a time",
    produces=FORMATS,
    parameters=PAGING.parameters,
    responses={
        200: Response(
            description="The products of the page; in HAL, below `_embedded.product`.",
            model={JSON: list[ProductJSON], HAL: PageHAL},
            headers=PAGING.headers,
        ),
        400: Response(description=f"`sort` or a filter is wrong. {_PROBLEM}"),
        404: Response(description="`page` or `size` is not an integer."),
    },
)
COUNT: Final = Operation(
    id="countProducts",
    description="The number of all products, or of those that match the filters.",
    summary="Count products",
    produces=FORMATS,
    parameters=PAGING.filter_parameters,
    responses={
        200: Response(description="The number of matching products.", model=Annotated[int, Field(ge=0)]),
        400: Response(description=f"A filter is wrong. {_PROBLEM}"),
    },
)
CREATE: Final = Operation(
    id="createProduct",
    description="The server generates the id; an id in the body is ignored.",
    summary="Create a product",
    produces=FORMATS,
    request=ProductDraft,
    responses={201: _CREATED, 400: _INVALID, 409: _TAKEN},
    examples=_EXAMPLES,
)
GET: Final = Operation(
    id="getProduct",
    description="Its ETag makes later reads and writes conditional.",
    summary="Get a product by its id",
    produces=FORMATS,
    parameters=(_ID, _IF_MATCH, _IF_NONE_MATCH),
    responses={
        200: Response(description="The product.", model=_PRODUCT, headers=_ENTITY_HEADERS),
        304: Response(description="The client's copy is current.", headers=_ENTITY_HEADERS),
        404: _NOT_FOUND,
        412: Response(description="No tag of `If-Match` matches the product."),
    },
)
PUT: Final = Operation(
    id="replaceProduct",
    description="The id comes from the path, not from the body. The server never generates it for another product.",
    summary="Replace a product, or create it under an id",
    produces=FORMATS,
    request=ProductDraft,
    parameters=(_ID, _IF_MATCH, _IF_NONE_MATCH),
    responses={
        201: _CREATED,
        204: Response(description="The product was replaced."),
        400: _INVALID,
        404: Response(description="No product has this id, and it is too large for a new product."),
        409: _TAKEN,
        412: _FAILED_PRECONDITION,
    },
    examples=_EXAMPLES,
)
DELETE: Final = Operation(
    id="deleteProduct",
    description="It can't be undone. The SKU can be used again, the id can't.",
    summary="Delete a product by its id",
    parameters=(_ID, _IF_MATCH, _IF_NONE_MATCH),
    responses={204: Response(description="The product was deleted."), 404: _NOT_FOUND, 412: _FAILED_PRECONDITION},
)

"""What the operations do, for the API description."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from plughost import Operation, Parameter, Response
from plughost.http import MAX_ID, Integer, Paging
from plughost_catalog_core import Name, Price, ProductDraft, Sku, Stock
from plughost_catalog_crud.hal import HAL, JSON
from plughost_catalog_store import FIELDS

BOTH: Final = (JSON, HAL)
_EXAMPLES: Final = {"a teapot": {"sku": "POT-1", "name": "Teapot", "price": 19.99, "stock": 3}}


class ProductJSON(BaseModel):
    """A product as it is stored."""

    model_config = ConfigDict(title="StoredProduct")

    id: Annotated[int, Integer(minimum=1, maximum=MAX_ID)]
    sku: Sku
    name: Name
    price: Price
    stock: Stock


class Link(BaseModel):
    """An absolute address."""

    href: str


class ProductHAL(ProductJSON):
    """A product and what can be done with it."""

    model_config = ConfigDict(title="ProductHAL")

    links: dict[str, Link] = Field(alias="_links")


class ProductsHAL(BaseModel):
    """The products of a list in HAL."""

    product: list[ProductHAL]


class PageHAL(BaseModel):
    """A page of products and the way to others."""

    embedded: ProductsHAL = Field(alias="_embedded")
    links: dict[str, Link] = Field(alias="_links")


_PRODUCT: Final = {JSON: ProductJSON, HAL: ProductHAL}


def _tag(name: str, description: str) -> Parameter:
    return Parameter(name=name, place="header", description=description)


PAGING: Final = Paging(model=ProductJSON, sort=FIELDS, filters=FIELDS[1:], refusal=404)
_ID: Final = Parameter(
    name="product_id",
    place="path",
    description="The product's id.",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_ID, "examples": [1]},
    refusal=404,
)
_IF_MATCH: Final = _tag("If-Match", "Only if the product's ETag is one of these; `*` for whatever it is.")
_IF_NONE_MATCH: Final = _tag("If-None-Match", "Only if the product's ETag is none of these.")
_PROBLEM: Final = "The detail tells what is wrong."
_ENTITY_HEADERS: Final = {"ETag": "Names the product's present state.", "Vary": "Accept."}
_CREATED: Final = Response(
    description="The product as it was created.",
    model=_PRODUCT,
    headers={"Location": "The absolute address of the new product.", **_ENTITY_HEADERS},
)
_INVALID: Final = Response(description="The body is no JSON, or breaks rules: `violations` names each invalid field.")
_TAKEN: Final = Response(description="Another product has this SKU.")
_ABSENT: Final = Response(description="There is no product with this id.")
_CHANGED: Final = Response(description="The precondition does not hold, or the product is absent.")

LIST: Final = Operation(
    id="listProducts",
    description="Sorted and filtered as asked, else by id. `Link` leads to the other pages, as HAL's `_links` do.",
    summary="List products, a page at a time",
    produces=BOTH,
    parameters=PAGING.parameters,
    responses={
        200: Response(
            description="The products of the page; in HAL, below `_embedded.product`.",
            model={JSON: list[ProductJSON], HAL: PageHAL},
            headers=PAGING.headers,
        ),
        400: Response(description=f"`sort` or a filter is wrong. {_PROBLEM}"),
        404: Response(description="`page` or `size` is no integer."),
    },
)
COUNT: Final = Operation(
    id="countProducts",
    description="Of all products, or of those that the filters let through.",
    summary="Count products",
    produces=BOTH,
    parameters=PAGING.filter_parameters,
    responses={
        200: Response(description="How many products match.", model=Annotated[int, Field(ge=0)]),
        400: Response(description=f"A filter is wrong. {_PROBLEM}"),
    },
)
CREATE: Final = Operation(
    id="createProduct",
    description="The store gives it an id; one in the body is ignored.",
    summary="Create a product",
    produces=BOTH,
    request=ProductDraft,
    responses={201: _CREATED, 400: _INVALID, 409: _TAKEN},
    examples=_EXAMPLES,
)
GET: Final = Operation(
    id="getProduct",
    description="With its ETag, by which a later read or write can be made conditional.",
    summary="Get a product by its id",
    produces=BOTH,
    parameters=(_ID, _IF_MATCH, _IF_NONE_MATCH),
    responses={
        200: Response(description="The product.", model=_PRODUCT, headers=_ENTITY_HEADERS),
        304: Response(description="The client has it already."),
        404: _ABSENT,
        412: Response(description="The product is not what `If-Match` names."),
    },
)
PUT: Final = Operation(
    id="replaceProduct",
    description="The id of the path counts, whatever the body says. The store never gives it to another product.",
    summary="Replace a product, or create it under an id",
    produces=BOTH,
    request=ProductDraft,
    parameters=(_ID, _IF_MATCH, _IF_NONE_MATCH),
    responses={
        201: _CREATED,
        204: Response(description="The product was replaced."),
        400: _INVALID,
        404: Response(description="There is no product with this id, and it is too large to be given to one."),
        409: _TAKEN,
        412: _CHANGED,
    },
    examples=_EXAMPLES,
)
DELETE: Final = Operation(
    id="deleteProduct",
    description="For good: its SKU is free for another product then, its id is not given again.",
    summary="Delete a product by its id",
    parameters=(_ID, _IF_MATCH),
    responses={204: Response(description="The product is gone."), 404: _ABSENT, 412: _CHANGED},
)

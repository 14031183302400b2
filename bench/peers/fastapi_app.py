"""The contract in FastAPI with SQLAlchemy, as its tutorial writes it.

A request has a session of its own. What waits for the database is a plain `def`, all else `async def`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import jwt
from bench.peers import models, schemas
from bench.peers.tokens import claims_of
from bench.sample import product
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

app = FastAPI()
kept = {each["sku"]: schemas.ProductInMemory(**each) for each in map(product, range(1, 101))}


def open_session() -> Iterator[Session]:
    """Give a request a session."""
    with models.Session() as session:
        yield session


SessionDep = Annotated[Session, Depends(open_session)]
Credentials = Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]


@app.exception_handler(RequestValidationError)
async def refuse(request: Request, error: Any) -> PlainTextResponse:
    """Answer 400, as the contract says, where FastAPI would answer 422."""
    lines = (f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors())
    return PlainTextResponse("\n".join(lines), 400)


@app.get("/api/v2/products")
async def list_kept() -> list[schemas.ProductInMemory]:
    """List the products in memory."""
    return list(kept.values())


@app.get("/api/v2/products/{sku}")
async def get_kept(sku: str) -> schemas.ProductInMemory:
    """Show one."""
    if sku not in kept:
        raise HTTPException(404, f"Product not found: {sku}")
    return kept[sku]


@app.post("/api/v2/products", status_code=201)
async def create_kept(new: schemas.Product, response: Response) -> schemas.ProductInMemory:
    """Create one."""
    if new.sku in kept:
        raise HTTPException(409, f"Product SKU already exists: {new.sku}")
    made = kept[new.sku] = schemas.ProductInMemory(**dict(new))
    response.headers["Location"] = f"/api/v2/products/{new.sku}"
    return made


@app.get("/api/v3/products", response_model=list[schemas.StoredProduct])
def list_stored(session: SessionDep) -> Any:
    """List the stored products."""
    return session.scalars(select(models.Product).order_by(models.Product.id)).all()


@app.get("/api/v3/products/{sku}", response_model=schemas.StoredProduct)
def get_stored(sku: str, session: SessionDep) -> Any:
    """Show one."""
    found = session.scalars(select(models.Product).where(models.Product.sku == sku)).one_or_none()
    if found is None:
        raise HTTPException(404, f"Product not found: {sku}")
    return found


@app.post("/api/v3/products", status_code=201, response_model=schemas.StoredProduct)
def create_stored(new: schemas.Product, session: SessionDep, response: Response) -> Any:
    """Create one."""
    made = models.Product(**new.model_dump())
    session.add(made)
    try:
        session.commit()
    except IntegrityError as error:
        raise HTTPException(409, f"Product SKU already exists: {new.sku}") from error
    response.headers["Location"] = f"/api/v3/products/{new.sku}"
    return made


@app.post("/messages", status_code=201, response_model=schemas.Message)
def create_message(draft: schemas.Draft, session: SessionDep, response: Response) -> Any:
    """Create a message."""
    made = models.Message(content=draft.content, created_at=datetime.now())
    session.add(made)
    session.commit()
    response.headers["Location"] = f"/messages/{made.id}"
    return made


@app.get("/messages/{key}", response_model=schemas.Message)
def get_message(key: int, session: SessionDep) -> Any:
    """Show one."""
    found = session.get(models.Message, key)
    if found is None:
        raise HTTPException(404)
    return found


@app.get("/mylibrary/setup/secured")
async def secured(credentials: Credentials) -> schemas.Identity:
    """Show whom a token names."""
    try:
        claims = claims_of(credentials.credentials)
    except jwt.InvalidTokenError as error:
        raise HTTPException(401, headers={"WWW-Authenticate": 'Bearer realm="mylibrary"'}) from error
    ends = datetime.fromtimestamp(claims["exp"], UTC)
    return schemas.Identity(email=claims["sub"], roles=claims["roles"], expires_at=ends)


@app.get("/users/profile")
def profile(session: SessionDep) -> schemas.Envelope:
    """Show the profile that all share."""
    found = session.get_one(models.Profile, "shared")
    data = schemas.profile_of(found)
    return schemas.Envelope(data=data, timestamp=time.time_ns() // 1_000_000)

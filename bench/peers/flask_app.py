"""The contract in Flask with SQLAlchemy, pydantic for what is sent, and a session for each request."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import jwt
from bench.peers import models, schemas
from bench.peers.tokens import claims_of
from bench.sample import product
from flask import Flask, Response, abort, request
from pydantic import BaseModel, TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import scoped_session

app = Flask(__name__)
session = scoped_session(models.Session)
kept = {each["sku"]: schemas.ProductInMemory(**each) for each in map(product, range(1, 101))}
all_kept = TypeAdapter(list[schemas.ProductInMemory])
all_stored = TypeAdapter(list[schemas.StoredProduct])


@app.teardown_appcontext
def close_session(_: BaseException | None) -> None:
    """Give the request's connection back."""
    session.remove()


@app.errorhandler(ValidationError)
def refuse(error: ValidationError) -> Response:
    """Name every invalid field."""
    lines = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    return Response("\n".join(lines), 400, mimetype="text/plain")


def answer(model: BaseModel, status: int = 200, location: str = "") -> Response:
    """Return a model as a response."""
    headers = {"Location": location} if location else None
    return Response(model.model_dump_json(by_alias=True), status, headers, mimetype="application/json")


@app.get("/api/v2/products")
def list_kept() -> Response:
    """List the products in memory."""
    return Response(all_kept.dump_json(list(kept.values()), by_alias=True), mimetype="application/json")


@app.get("/api/v2/products/<path:sku>")
def get_kept(sku: str) -> Response:
    """Show one."""
    if sku not in kept:
        abort(404, f"Product not found: {sku}")
    return answer(kept[sku])


@app.post("/api/v2/products")
def create_kept() -> Response:
    """Create one."""
    made = schemas.ProductInMemory.model_validate_json(request.get_data())
    if kept.setdefault(made.sku, made) is not made:
        abort(409, f"Product SKU already exists: {made.sku}")
    return answer(made, 201, f"/api/v2/products/{made.sku}")


@app.get("/api/v3/products")
def list_stored() -> Response:
    """List the stored products."""
    rows = session.scalars(select(models.Product).order_by(models.Product.id)).all()
    found = all_stored.validate_python(rows, from_attributes=True)
    return Response(all_stored.dump_json(found, by_alias=True), mimetype="application/json")


@app.get("/api/v3/products/<path:sku>")
def get_stored(sku: str) -> Response:
    """Show one."""
    found = session.scalars(select(models.Product).where(models.Product.sku == sku)).one_or_none()
    if found is None:
        abort(404, f"Product not found: {sku}")
    return answer(schemas.StoredProduct.model_validate(found))


@app.post("/api/v3/products")
def create_stored() -> Response:
    """Create one."""
    made = models.Product(**schemas.Product.model_validate_json(request.get_data()).model_dump())
    session.add(made)
    try:
        session.commit()
    except IntegrityError:
        abort(409, f"Product SKU already exists: {made.sku}")
    return answer(schemas.StoredProduct.model_validate(made), 201, f"/api/v3/products/{made.sku}")


@app.post("/messages")
def create_message() -> Response:
    """Create a message."""
    draft = schemas.Draft.model_validate_json(request.get_data())
    made = models.Message(content=draft.content, created_at=datetime.now())
    session.add(made)
    session.commit()
    return answer(schemas.Message.model_validate(made), 201, f"/messages/{made.id}")


@app.get("/messages/<int:key>")
def get_message(key: int) -> Response:
    """Show one."""
    found = session.get(models.Message, key)
    return Response(status=404) if found is None else answer(schemas.Message.model_validate(found))


@app.get("/mylibrary/setup/secured")
def secured() -> Response:
    """Show whom a token names."""
    given = request.authorization
    try:
        claims = claims_of(given.token or "" if given is not None else "")
    except jwt.InvalidTokenError:
        return Response(status=401, headers={"WWW-Authenticate": 'Bearer realm="mylibrary"'})
    ends = datetime.fromtimestamp(claims["exp"], UTC)
    return answer(schemas.Identity(email=claims["sub"], roles=claims["roles"], expires_at=ends))


@app.get("/users/profile")
def profile() -> Response:
    """Show the profile that all share."""
    data = schemas.profile_of(session.get_one(models.Profile, "shared"))
    return answer(schemas.Envelope(data=data, timestamp=time.time_ns() // 1_000_000))

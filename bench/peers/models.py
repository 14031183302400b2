"""The stored tables in SQLAlchemy's ORM, as FastAPI, Litestar and Flask use them here. The tables are there already."""

from __future__ import annotations

import os
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, Numeric, String, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker


class Base(DeclarativeBase):
    """What the tables are declared on."""


class Product(Base):
    """A product of catalog v3."""

    __tablename__ = "products"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    sku: Mapped[str] = mapped_column(String(255), unique=True)
    name: Mapped[str] = mapped_column(String(255))
    price: Mapped[Decimal] = mapped_column(Numeric(15, 4))
    stock: Mapped[int] = mapped_column(BigInteger)


class Message(Base):
    """A message."""

    __tablename__ = "messages"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    content: Mapped[str] = mapped_column(String(500))
    created_at: Mapped[datetime]


class Profile(Base):
    """The profile that all share."""

    __tablename__ = "profiles"

    owner: Mapped[str] = mapped_column(String(255), primary_key=True)
    user_id: Mapped[str] = mapped_column(String(36), unique=True)
    display_name: Mapped[str] = mapped_column(String(100))
    email: Mapped[str | None]
    profile_image_url: Mapped[str | None]
    date_joined: Mapped[int] = mapped_column(BigInteger)
    fitness_level: Mapped[str]
    height_cm: Mapped[float | None]
    weight_kg: Mapped[float | None]
    date_of_birth: Mapped[int | None] = mapped_column(BigInteger)
    gender: Mapped[str]
    is_premium: Mapped[bool]
    use_metric_system: Mapped[bool]
    enable_notifications: Mapped[bool]
    dark_mode_preference: Mapped[str]
    rest_timer_duration: Mapped[int]
    updated_at: Mapped[int] = mapped_column(BigInteger)


# A connection for each thread that FastAPI and Litestar may use: with fewer, threads that wait for one hold up others.
engine = create_engine(
    os.environ["BENCH_DATABASE"].replace("postgresql://", "postgresql+psycopg2://"), pool_size=40, max_overflow=0
)
Session = sessionmaker(engine, expire_on_commit=False)

if engine.dialect.name == "sqlite":

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

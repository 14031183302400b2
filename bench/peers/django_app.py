"""The contract in Django REST framework, in one file, without what an API has no use for: sessions, templates, CSRF."""

# Django wants its settings before its modules are imported; fields have the names of the wire.
# ruff: noqa: E402, N815

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import django
import jwt
from bench.peers.tokens import claims_of
from bench.sample import product
from django.conf import settings
from django.core.wsgi import get_wsgi_application

_url = os.environ["BENCH_DATABASE"]
_parts = urlsplit(_url)
SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": _url.removeprefix("sqlite:///"),
    "OPTIONS": {
        "init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL",
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
    },
}
POSTGRESQL = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": _parts.path.strip("/"),
    "USER": _parts.username,
    "PASSWORD": _parts.password,
    "HOST": _parts.hostname,
    "PORT": _parts.port,
}
settings.configure(
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    DATABASES={
        "default": (POSTGRESQL if _url.startswith("postgresql") else SQLITE)
        | {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": True}
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["rest_framework"],
    MIDDLEWARE=["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware"],
    REST_FRAMEWORK={
        "COERCE_DECIMAL_TO_STRING": False,
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
        "DEFAULT_PERMISSION_CLASSES": [],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
        "UNAUTHENTICATED_USER": None,
    },
    ROOT_URLCONF=__name__,
    SECRET_KEY="for the benchmark",
    USE_TZ=False,
)
django.setup()

from django.db import IntegrityError, models
from django.urls import path
from rest_framework import serializers, status
from rest_framework.exceptions import APIException, NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class Conflict(APIException):
    """A product of this SKU is there."""

    status_code = status.HTTP_409_CONFLICT


class Product(models.Model):
    """A product of catalog v3."""

    id = models.BigAutoField(primary_key=True)
    sku = models.CharField(max_length=255, unique=True)
    name = models.CharField(max_length=255)
    price = models.DecimalField(max_digits=15, decimal_places=4)
    stock = models.BigIntegerField()

    class Meta:
        """The table is there already."""

        app_label, db_table, managed = "bench", "products", False


class Message(models.Model):
    """A message."""

    id = models.BigAutoField(primary_key=True)
    content = models.CharField(max_length=500)
    created_at = models.DateTimeField()

    class Meta:
        """The table is there already."""

        app_label, db_table, managed = "bench", "messages", False


class Profile(models.Model):
    """The profile that all share."""

    owner = models.CharField(max_length=255, primary_key=True)
    user_id = models.CharField(max_length=36, unique=True)
    display_name = models.CharField(max_length=100)
    email = models.CharField(max_length=255, null=True)
    profile_image_url = models.CharField(max_length=2000, null=True)
    date_joined = models.BigIntegerField()
    fitness_level = models.CharField(max_length=20)
    height_cm = models.FloatField(null=True)
    weight_kg = models.FloatField(null=True)
    date_of_birth = models.BigIntegerField(null=True)
    gender = models.CharField(max_length=20)
    is_premium = models.BooleanField()
    use_metric_system = models.BooleanField()
    enable_notifications = models.BooleanField()
    dark_mode_preference = models.CharField(max_length=20)
    rest_timer_duration = models.IntegerField()
    updated_at = models.BigIntegerField()

    class Meta:
        """The table is there already."""

        app_label, db_table, managed = "bench", "profiles", False


class ProductSerializer(serializers.Serializer[Any]):
    """A product as it is sent to be created. The database finds duplicates, so nothing is asked before."""

    sku = serializers.RegexField(r"\S", max_length=255, trim_whitespace=False)
    name = serializers.RegexField(r"\S", max_length=255, trim_whitespace=False)
    price = serializers.DecimalField(max_digits=15, decimal_places=4, min_value=0, normalize_output=True)
    stock = serializers.IntegerField(min_value=0, max_value=2**63 - 1)


class InMemorySerializer(ProductSerializer):
    """A product of catalog v2."""

    inStock = serializers.SerializerMethodField()

    def get_inStock(self, each: dict[str, Any]) -> bool:  # noqa: N802 - Django finds it by this name
        """Tell whether there is any."""
        return bool(each["stock"] > 0)


class StoredSerializer(ProductSerializer):
    """A product of catalog v3."""

    id = serializers.IntegerField(read_only=True)


class MessageSerializer(serializers.Serializer[Any]):
    """A message."""

    id = serializers.IntegerField(read_only=True)
    content = serializers.CharField(max_length=500, trim_whitespace=False, allow_blank=True)
    createdAt = serializers.DateTimeField(source="created_at", read_only=True)


class PreferencesSerializer(serializers.Serializer[Any]):
    """How a user likes the app."""

    useMetricSystem = serializers.BooleanField(source="use_metric_system")
    enableNotifications = serializers.BooleanField(source="enable_notifications")
    darkModePreference = serializers.CharField(source="dark_mode_preference")
    restTimerDuration = serializers.IntegerField(source="rest_timer_duration")


class ProfileSerializer(serializers.Serializer[Any]):
    """A user's profile."""

    userId = serializers.CharField(source="user_id")
    displayName = serializers.CharField(source="display_name")
    email = serializers.CharField()
    profileImageUrl = serializers.CharField(source="profile_image_url")
    dateJoined = serializers.IntegerField(source="date_joined")
    fitnessLevel = serializers.CharField(source="fitness_level")
    heightCm = serializers.FloatField(source="height_cm")
    weightKg = serializers.FloatField(source="weight_kg")
    dateOfBirth = serializers.IntegerField(source="date_of_birth")
    gender = serializers.CharField()
    isPremium = serializers.BooleanField(source="is_premium")
    settings = PreferencesSerializer(source="*")
    updatedAt = serializers.IntegerField(source="updated_at")


kept: dict[str, dict[str, Any]] = {}
for _each in map(product, range(1, 101)):
    _new = ProductSerializer(data=_each)
    _new.is_valid(raise_exception=True)
    kept[_each["sku"]] = _new.validated_data


class KeptProducts(APIView):
    """The products of catalog v2."""

    def get(self, request: Request) -> Response:
        """List them."""
        return Response(InMemorySerializer(list(kept.values()), many=True).data)

    def post(self, request: Request) -> Response:
        """Create one."""
        new = InMemorySerializer(data=request.data)
        new.is_valid(raise_exception=True)
        sku = new.validated_data["sku"]
        if kept.setdefault(sku, new.validated_data) is not new.validated_data:
            raise Conflict(f"Product SKU already exists: {sku}")
        shown = InMemorySerializer(new.validated_data).data
        return Response(shown, 201, headers={"Location": f"/api/v2/products/{sku}"})


class KeptProduct(APIView):
    """One of them."""

    def get(self, request: Request, sku: str) -> Response:
        """Show it."""
        if sku not in kept:
            raise NotFound(f"Product not found: {sku}")
        return Response(InMemorySerializer(kept[sku]).data)


class Products(APIView):
    """The products of catalog v3."""

    def get(self, request: Request) -> Response:
        """List them."""
        return Response(StoredSerializer(Product.objects.order_by("id"), many=True).data)

    def post(self, request: Request) -> Response:
        """Create one."""
        new = StoredSerializer(data=request.data)
        new.is_valid(raise_exception=True)
        try:
            made = Product.objects.create(**new.validated_data)
        except IntegrityError as error:
            raise Conflict(f"Product SKU already exists: {new.validated_data['sku']}") from error
        return Response(StoredSerializer(made).data, 201, headers={"Location": f"/api/v3/products/{made.sku}"})


class OneProduct(APIView):
    """One of them."""

    def get(self, request: Request, sku: str) -> Response:
        """Show it."""
        found = Product.objects.filter(sku=sku).first()
        if found is None:
            raise NotFound(f"Product not found: {sku}")
        return Response(StoredSerializer(found).data)


class Messages(APIView):
    """The messages."""

    def post(self, request: Request) -> Response:
        """Create one."""
        draft = MessageSerializer(data=request.data)
        draft.is_valid(raise_exception=True)
        made = Message.objects.create(**draft.validated_data, created_at=datetime.now())
        return Response(MessageSerializer(made).data, 201, headers={"Location": f"/messages/{made.pk}"})


class OneMessage(APIView):
    """One of them."""

    def get(self, request: Request, key: int) -> Response:
        """Show it."""
        found = Message.objects.filter(pk=key).first()
        return Response(status=404) if found is None else Response(MessageSerializer(found).data)


class Secured(APIView):
    """A resource for whoever has a token."""

    def get(self, request: Request) -> Response:
        """Show whom it names."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            claims = claims_of(token if scheme.lower() == "bearer" else "")
        except jwt.InvalidTokenError:
            return Response(status=401, headers={"WWW-Authenticate": 'Bearer realm="mylibrary"'})
        ends = datetime.fromtimestamp(claims["exp"], UTC)
        return Response({"email": claims["sub"], "roles": claims["roles"], "expiresAt": ends})


class UserProfile(APIView):
    """The profile that all share."""

    def get(self, request: Request) -> Response:
        """Show it."""
        data = ProfileSerializer(Profile.objects.get(owner="shared")).data
        return Response({"status": "success", "data": data, "code": 200, "timestamp": time.time_ns() // 1_000_000})


urlpatterns = [
    path("api/v2/products", KeptProducts.as_view()),
    path("api/v2/products/<path:sku>", KeptProduct.as_view()),
    path("api/v3/products", Products.as_view()),
    path("api/v3/products/<path:sku>", OneProduct.as_view()),
    path("messages", Messages.as_view()),
    path("messages/<int:key>", OneMessage.as_view()),
    path("mylibrary/setup/secured", Secured.as_view()),
    path("users/profile", UserProfile.as_view()),
]
app = get_wsgi_application()

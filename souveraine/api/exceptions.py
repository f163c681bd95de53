"""The one exception handler of the API: Letta's `detail` first, our code and data beside it."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from redis.exceptions import RedisError
from rest_framework import exceptions as drf
from rest_framework.response import Response

from souveraine import ids
from souveraine.api.unknown import note_unknown
from souveraine.config import Config
from souveraine.errors import (
    ConcurrentUpdate,
    InvalidArgument,
    PayloadTooLarge,
    ProviderError,
    SouveraineError,
    Unavailable,
)

logger = logging.getLogger(__name__)


def body_of(error: SouveraineError) -> dict[str, Any]:
    """Return the JSON body of an error."""
    if isinstance(error, ProviderError):
        return {
            "error": {
                "type": error.error_type,
                "message": error.message,
                "detail": error.provider_detail,
            }
        }
    data = dict(error.data)
    body: dict[str, Any] = {"trace_id": data.pop("trace_id")} if "trace_id" in data else {}
    return {**body, "detail": error.detail, "code": error.code, **data}


def too_large(limit_bytes: int, setting: str = "SOUVERAINE_MAX_REQUEST_BYTES") -> PayloadTooLarge:
    """Build the 413 that names the limit."""
    return PayloadTooLarge(
        f"The request body is larger than the limit of {limit_bytes} bytes. Send less, or raise {setting}.",
        max_request_bytes=limit_bytes,
    )


def _is_race(exc: Exception) -> bool:
    """Tell whether a row came or went between a look and a write.

    Django raises the plain DatabaseError itself, for a `save(update_fields=…)` that finds no row.
    """
    return isinstance(exc, IntegrityError | ObjectDoesNotExist) or type(exc) is DatabaseError


def _from_framework(exc: Exception, config: Config) -> SouveraineError | None:
    if isinstance(exc, RequestDataTooBig):
        return too_large(config["SOUVERAINE_MAX_REQUEST_BYTES"])
    if isinstance(exc, ids.MalformedId):
        example = f"{exc.prefix}-123e4567-e89b-42d3-8456-426614174000"
        return InvalidArgument(f"{exc.text[:80]!r} is not a {exc.prefix} id like {example}.")
    if isinstance(exc, SuspiciousOperation):
        return InvalidArgument(f"The request was refused: {exc} Send fewer or shorter parameters.")
    if isinstance(exc, RedisError):
        return Unavailable(
            "Redis does not answer, so the run could not be started or followed. Try again."
        )
    if isinstance(exc, OperationalError | InterfaceError):
        return Unavailable(
            "The database does not answer, is locked, or its disk is full. Look whether the change took effect "
            "before you repeat it."
        )
    if _is_race(exc):
        return ConcurrentUpdate(
            "What this request is about was changed or deleted by another one at the same time. Look at it, and send "
            "again if that is still right."
        )
    return None


def handle(exc: Exception, context: dict[str, Any]) -> Response:
    """Render any exception of a view. Unexpected ones are logged once and answered without details."""
    from_framework = _from_framework(exc, settings.CONFIG)
    if from_framework is not None:
        shown = exc if _is_race(exc) else None  # it may be a mistake of ours
        logger.warning("event=request_unavailable error=%r", exc, exc_info=shown)
        exc = from_framework
    if isinstance(exc, SouveraineError):
        status = exc.status if isinstance(exc, ProviderError) else exc.http_status
        headers = (
            {"WWW-Authenticate": "Bearer"}
            if status == 401 and not isinstance(exc, ProviderError)
            else {}
        )
        if status == 409 or "run_id" in exc.data:
            headers["X-Should-Retry"] = "false"  # else the SDKs repeat a 409 twice by themselves
        if status == 503:
            headers["Retry-After"] = "1"
        return Response(body_of(exc), status=status, headers=headers)
    if isinstance(exc, Http404):
        return Response({"detail": "Not Found"}, status=404)
    if isinstance(exc, drf.MethodNotAllowed):
        return Response({"detail": "Method Not Allowed"}, status=405)
    if isinstance(exc, drf.APIException):
        return Response({"detail": str(exc.detail)}, status=exc.status_code)
    if isinstance(exc, UnreadablePostError):
        return Response({"detail": "The request body ended early."}, status=400)
    kind = "database" if isinstance(exc, DatabaseError) else "view"
    logger.error(
        "event=unexpected_error kind=%s path=%s", kind, context["request"].path, exc_info=exc
    )
    return Response(
        {"detail": "An unknown error occurred", "code": "INTERNAL_SERVER_ERROR"}, status=500
    )


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer an unknown route in JSON."""
    note_unknown(request.method or "", request.path)
    return JsonResponse({"detail": "Not Found"}, status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a failure outside of a view in JSON, without details."""
    return JsonResponse(
        {"detail": "An unknown error occurred", "code": "INTERNAL_SERVER_ERROR"}, status=500
    )


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer what Django itself refuses (bad form data, bad headers) in JSON."""
    return JsonResponse({"detail": "The request is malformed."}, status=400)

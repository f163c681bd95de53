"""Views that hand streams over in every way the tests look at, and their URLs."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from souveraine.api.exceptions import handle
from souveraine.api.handoff import StreamSender, hand_over
from souveraine.errors import ProviderError
from souveraine.events import sse
from souveraine.events.hub import get_hub
from souveraine.events.log import END

STATE: Counter[str] = Counter()


def mark(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """Add headers as CORS and session middleware do; answer a preflight; replace one answer."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.method == "OPTIONS":
            return HttpResponse(status=204, headers={"Access-Control-Allow-Origin": "*"})
        response = get_response(request)
        response["X-From-Middleware"] = "yes"
        response["Vary"] = "Origin"
        response["Cache-Control"] = "private"
        response.set_cookie("session", "s1")
        if request.GET.get("replace"):
            return JsonResponse({"detail": "replaced"}, status=503)
        return response

    return middleware


@dataclass
class Ticks:
    """Counts aloud, `gap` seconds apart."""

    count: int
    gap: float

    async def run(self, send: StreamSender) -> None:
        STATE["open"] += 1
        try:
            await send.start(200, {**sse.HEADERS, "Vary": "Accept"})
            for number in range(self.count):
                await send.body(sse.data_frame(b"%d" % number))
                await asyncio.sleep(self.gap)
            await send.body(sse.DONE, more=False)
            await asyncio.sleep(0.05)
            STATE["done"] += 1
        except asyncio.CancelledError:
            STATE["cancelled"] += 1
            raise
        finally:
            STATE["open"] -= 1


FLOOD_PIECE = b"|" * 65_536
FLOOD_PIECES = 1_000


class Floods:
    """Sends 64 MiB as fast as it may; `flooded` counts the pieces that got away."""

    async def run(self, send: StreamSender) -> None:
        await send.start(200, sse.HEADERS)
        for _ in range(FLOOD_PIECES):
            await send.body(FLOOD_PIECE)
            STATE["flooded"] += 1


async def flood_socket(scope: Any, receive: Any, send: Any) -> None:
    """Does the same on a WebSocket."""
    await receive()
    await send({"type": "websocket.accept"})
    for _ in range(FLOOD_PIECES):
        await send({"type": "websocket.send", "bytes": FLOOD_PIECE})
        STATE["flooded"] += 1
    await send({"type": "websocket.close"})


@dataclass
class Fails:
    """Raises before or after the start of its answer."""

    when: str

    async def run(self, send: StreamSender) -> None:
        if self.when == "provider":
            raise ProviderError("llm_rate_limit", "slow down")
        if self.when == "silent":
            return
        if self.when == "after":
            await send.start(200, sse.HEADERS)
            await send.body(sse.data_frame(b"1"))
        raise LookupError("a fault in the pump")


class Answers:
    """Gives one JSON answer."""

    async def run(self, send: StreamSender) -> None:
        await asyncio.sleep(0.01)
        await send.json(201, {"text": "é"}, {"X-Own": "1"})


@dataclass
class Follows:
    """Streams a run's events from the hub."""

    run_id: uuid.UUID

    async def run(self, send: StreamSender) -> None:
        await send.start(200, sse.HEADERS)
        STATE["followers"] += 1
        async with get_hub().subscribe(self.run_id) as subscription:
            async for events in subscription:
                await send.body(b"".join(sse.data_frame(event.data) for event in events))
                if events[-1].kind == END:
                    return


class View(APIView):
    """Independent of the project's REST settings."""

    authentication_classes: Any = []
    permission_classes: Any = []

    def get_exception_handler(self) -> Any:
        return handle


class TicksView(View):
    def get(self, request: Request) -> HttpResponse:
        if request.GET.get("deny"):
            raise PermissionDenied
        query = request.GET
        return hand_over(request, Ticks(int(query.get("n", 3)), float(query.get("gap", 0))))

    post = get


class FailsView(View):
    def get(self, request: Request) -> HttpResponse:
        return hand_over(request, Fails(request.GET["when"]))


class FloodsView(View):
    def get(self, request: Request) -> HttpResponse:
        return hand_over(request, Floods())


class AnswersView(View):
    def post(self, request: Request) -> HttpResponse:
        return hand_over(request, Answers())


class FollowsView(View):
    def get(self, request: Request, run_id: uuid.UUID) -> HttpResponse:
        return hand_over(request, Follows(run_id))


class RaisesView(View):
    def get(self, request: Request) -> HttpResponse:
        hand_over(request, Ticks(1, 0))
        raise LookupError("a fault in the view, after the hand-over")


class StateView(View):
    def get(self, request: Request) -> Response:
        return Response({**STATE, "threads": threading.active_count()})


def echo(request: HttpRequest) -> HttpResponse:
    """Tell how much of the body arrived."""
    return JsonResponse({"length": len(request.body), "client": request.META["REMOTE_ADDR"]})


urlpatterns = [
    path("ticks", TicksView.as_view()),
    path("fails", FailsView.as_view()),
    path("floods", FloodsView.as_view()),
    path("answers", AnswersView.as_view()),
    path("runs/<uuid:run_id>", FollowsView.as_view()),
    path("raises", RaisesView.as_view()),
    path("state", StateView.as_view()),
    path("echo", echo),
]

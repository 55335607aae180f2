"""Health, readiness, metrics and the description of the API."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

from rankd.api.calls.answers import Health
from rankd.api.calls.call import Access, Call
from rankd.api.http.request import JSON, Request, Response, json_response
from rankd.api.service import Service, encode
from rankd.errors import Overloaded

__version__ = version("rankd")
_MINUTES = (b"cache-control", b"public, max-age=300")
_HTML = (b"content-type", b"text/html; charset=utf-8")
_METRICS = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


def health(_service: Service, _request: Request) -> Response:
    """Answer that the process runs."""
    return alive()


def alive() -> Response:
    """Answer that the process runs, whatever its state."""
    return json_response(encode(Health("ok", __version__)))


def ready(service: Service, _request: Request) -> Response:
    """Answer whether the server accepts requests.

    The position shows how many events there are, so it is left out where reads are not public. An archive that is
    behind is no reason to send requests to another server.
    """
    if service.is_stopping:
        raise Overloaded("the server is stopping; send requests to another one")
    service.boards.check_open()
    service.boards.check_ready()
    is_public = service.config.server.public_read
    position = service.boards.position if is_public else None
    archive = service.boards.archive_status
    if not is_public:
        archive = None if archive is None else msgspec.structs.replace(archive, behind_events=None)
    return json_response(encode(Health("ready", __version__, position, archive)))


async def metrics(service: Service, _request: Request) -> Response:
    """Answer with the metrics for Prometheus."""
    return Response(await service.scrapes.text(), [_METRICS, (b"cache-control", b"no-store")])


def openapi(service: Service, request: Request) -> Response:
    """Answer with the description of every call."""
    return service.description.response(request, [JSON, _MINUTES])


def docs(service: Service, request: Request) -> Response:
    """Answer with the reference page."""
    return service.docs_page.response(request, [_HTML, _MINUTES, (b"content-security-policy", service.docs_policy)])


SERVER_CALLS: tuple[Call, ...] = (
    Call(
        name="health",
        method="GET",
        path="/healthz",
        access=Access.OPEN,
        handler=health,
        about="The process runs.",
        answer=Health,
    ),
    Call(
        name="ready",
        method="GET",
        path="/readyz",
        access=Access.OPEN,
        handler=ready,
        about="The boards have caught up with their ledger and take requests.",
        answer=Health,
    ),
    Call(
        name="metrics",
        method="GET",
        path="/metrics",
        access=Access.METRICS,
        handler=metrics,
        about="Metrics for Prometheus.",
        answer_media="text/plain",
    ),
    Call(
        name="openapi",
        method="GET",
        path="/openapi.json",
        access=Access.OPEN,
        handler=openapi,
        about="This description.",
        answer=dict[str, Any],
    ),
    Call(
        name="docs",
        method="GET",
        path="/docs",
        access=Access.OPEN,
        handler=docs,
        about="This description, for people.",
        answer_media="text/html",
        is_page=True,
    ),
)

"""The pages, their files, and the script of `<rankd-board>`."""

from __future__ import annotations

from rankd.api.calls.call import Access, Call
from rankd.api.http.request import Header, Request, Response
from rankd.api.http.static import StaticBody
from rankd.api.page import BOARD_SCRIPT, asset, board_page, front_page, made_up_board_page, page_policy
from rankd.api.service import Service
from rankd.errors import BoardUnknown, InvalidValue, RouteUnknown

# Revalidated each time: after an update, no page mixes scripts of two versions.
_REVALIDATE: Header = (b"cache-control", b"no-cache")


def show_front(service: Service, request: Request) -> Response:
    """Answer with the page that lists all boards."""
    return _page(service, request, front_page(service.config.push.avatar_origins))


def show_board(service: Service, request: Request) -> Response:
    """Answer with a board's page; where reads are public, a board that does not exist is a 404."""
    board, avatar_origins = request.arguments[0], service.config.push.avatar_origins
    if not service.config.server.public_read:  # neither status nor time reveals which boards exist
        return _page(service, request, made_up_board_page(board, avatar_origins))
    try:
        title = service.boards.board(board).title
    except (BoardUnknown, InvalidValue):
        if b"text/html" not in request.headers.get(b"accept", b""):
            raise
        return _page(service, request, made_up_board_page(board, avatar_origins), 404)
    return _page(service, request, board_page(board, title, avatar_origins))


def send_board_script(_service: Service, request: Request) -> Response:
    """Answer with the script of `<rankd-board>`."""
    return _file(request, BOARD_SCRIPT)


def send_file(_service: Service, request: Request) -> Response:
    """Answer with a file of the pages."""
    return _file(request, request.arguments[0])


def _page(service: Service, request: Request, page: StaticBody, status: int = 200) -> Response:
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", page_policy(service.config.push.avatar_origins)),
        _REVALIDATE,
    ]
    return page.response(request, headers, status)


def _file(request: Request, name: str) -> Response:
    file = asset(name)
    if file is None:
        raise RouteUnknown("path: the pages have no such file")
    return file.body.response(request, [(b"content-type", file.media), _REVALIDATE])


PAGES: tuple[Call, ...] = (
    Call(
        name="front_page",
        method="GET",
        path="/",
        access=Access.OPEN,
        handler=show_front,
        about="The page that lists all boards.",
        answer_media="text/html",
        is_page=True,
    ),
    Call(
        name="board_page",
        method="GET",
        path="/boards/{board}",
        access=Access.OPEN,
        handler=show_board,
        about="A board's page, live.",
        answer_media="text/html",
        is_page=True,
    ),
    Call(
        name="board_script",
        method="GET",
        path="/rankd-board.js",
        access=Access.OPEN,
        handler=send_board_script,
        about="The script of `<rankd-board>`, a live table for pages of your own.",
        answer_media="text/javascript",
        is_page=True,
    ),
    Call(
        name="page_file",
        method="GET",
        path="/assets/{file}",
        access=Access.OPEN,
        handler=send_file,
        about="A script, a style or a picture of the pages.",
        answer_media="*/*",
        is_page=True,
    ),
)

"""The router: a tree with one step for each segment of a path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from rankd.api.http.request import PATH_BYTES_MAX, decode_segment
from rankd.errors import MethodUnknown, RouteUnknown, TooLarge


class Routed(Protocol):
    """The part of a call that a router needs."""

    @property
    def method(self) -> str:
        """GET, PUT, POST or DELETE."""

    @property
    def path(self) -> str:
        """Such as /v1/boards/{board}."""


RoutedCall = TypeVar("RoutedCall", bound=Routed)


class _Step(Generic[RoutedCall]):
    def __init__(self) -> None:
        self.named: dict[bytes, _Step[RoutedCall]] = {}
        self.any: _Step[RoutedCall] | None = None
        self.calls: dict[str, RoutedCall] = {}


class Router(Generic[RoutedCall]):
    """All calls, by path and method."""

    def __init__(self, calls: Iterable[RoutedCall]) -> None:
        """Each path and method occurs once."""
        self._root: _Step[RoutedCall] = _Step()
        for call in calls:
            step = self._root
            for part in call.path.split("/")[1:]:
                if part.startswith("{"):
                    step.any = step.any or _Step()
                    step = step.any
                else:
                    step = step.named.setdefault(part.encode(), _Step())
            step.calls[call.method] = call

    def find(self, method: str, raw_path: bytes) -> tuple[RoutedCall, list[str]]:
        """Return the call and the variable segments of its path."""
        if len(raw_path) > PATH_BYTES_MAX:
            raise TooLarge(f"path: must be at most {PATH_BYTES_MAX} bytes")
        step, arguments = self._root, []
        parts = iter(raw_path.split(b"/"))
        next(parts)
        for part in parts:
            following = step.named.get(part)
            if following is None:
                following = step.any
                if following is None or not part:
                    raise RouteUnknown("path: there is no such call; /docs lists them all")
                arguments.append(decode_segment(part))
            step = following
        call = step.calls.get(method)
        if call is None:
            if not step.calls:
                raise RouteUnknown("path: there is no such call; /docs lists them all")
            allowed = tuple(sorted(step.calls))
            raise MethodUnknown(f"method: this path takes {', '.join(allowed)}", allowed)
        return call, arguments

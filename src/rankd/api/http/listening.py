"""Sockets to listen on: bound here where several processes share an address, or our own accept loop uses them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankd.errors import AddressTaken, InvalidValue

BACKLOG = 1_024
LOCAL_PATH_BYTES_MAX = 107  # of a Unix socket's address, on every system


Address = tuple[Any, ...]  # as getaddrinfo returns it


def reserved_addresses(host: str, port: int) -> tuple[list[Address], list[socket.socket]]:
    """Reserve every address of a host for `shared_sockets`, with the port in place of 0; raises AddressTaken.

    The addresses are kept as long as the sockets, which do not listen, are open.
    """
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        unshared = bound_sockets(resolved)  # another server's address is refused
        addresses = [(bound.family, bound.type, bound.proto, "", bound.getsockname()) for bound in unshared]
        for bound in unshared:
            bound.close()
        return addresses, bound_sockets(addresses, is_shared=True)
    except OSError as problem:
        raise address_taken(host, port, problem) from None


def shared_sockets(addresses: Iterable[Address]) -> list[socket.socket]:
    """Return sockets of this process at addresses that others share; the kernel spreads connections over them."""
    return bound_sockets(addresses, is_shared=True)


def bound_sockets(addresses: Iterable[Address], *, is_shared: bool = False) -> list[socket.socket]:
    """Bind to the results of getaddrinfo; raises OSError where one is taken."""
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in addresses:
            bound = socket.socket(family, kind, protocol)
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(address)
            bound.setblocking(False)
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def address_taken(host: str, port: int, problem: OSError) -> AddressTaken:
    """Return the error for an address that cannot be listened on."""
    return AddressTaken(f"server.host, server.port: cannot listen on {host} port {port}: {problem.strerror}")


def local_socket(path: Path) -> socket.socket:
    """Listen on a Unix socket in a private folder, in place of one that a former process left there."""
    check_local_path(path)
    with suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(path))
        os.chmod(path, 0o600)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def check_local_path(path: Path) -> None:
    """Refuse a path that is too long for a Unix socket."""
    if len(os.fsencode(path)) > LOCAL_PATH_BYTES_MAX:
        raise InvalidValue(
            "ledger.url",
            f"must be a folder with a shorter path: workers meet at {path}, and the system allows "
            f"{LOCAL_PATH_BYTES_MAX} bytes",
        )

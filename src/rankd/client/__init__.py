"""HTTP clients with the operations of the library: `Client`, and `AsyncClient` for asyncio.

    calls (requests and decoders) → exchange (key, signature, retries) → sync or asynchronous (I/O)

Requests and retries are written once, without I/O; the two drivers only send and wait. Nothing here imports the server.
"""

from rankd.client.asynchronous import AsyncClient
from rankd.client.sync import Client

__all__ = ["AsyncClient", "Client"]

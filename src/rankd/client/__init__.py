"""The library's verbs over HTTP, for programs that are not the server: `Client`, and `AsyncClient` for asyncio.

    calls (what to ask, how to read the answer) → exchange (key, signature, retries) → sync or asynchronous (sends)

What is asked and when it is asked again is written once, without I/O; the two drivers only send and wait. Nothing here
imports the server.
"""

from rankd.client.asynchronous import AsyncClient
from rankd.client.sync import Client

__all__ = ["AsyncClient", "Client"]

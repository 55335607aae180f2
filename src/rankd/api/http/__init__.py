"""The HTTP/1.1 and WebSocket server that runs the ASGI application."""

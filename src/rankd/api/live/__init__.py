"""Live connections: server-sent events, WebSocket, and waiting for a position."""

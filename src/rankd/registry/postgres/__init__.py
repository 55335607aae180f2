"""The registry, the credentials and the standings that all processes share."""

"""The HTTP service: routes, credentials, limits, problems."""

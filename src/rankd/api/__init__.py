"""The request comes in: routes, credentials, limits, problems."""

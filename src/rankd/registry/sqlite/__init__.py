"""The registry and the credentials of an embedded installation."""

"""The page at /docs: the description of every call, for people."""

from rankd.api.openapi.docs.page import docs_page, docs_policy

__all__ = ["docs_page", "docs_policy"]

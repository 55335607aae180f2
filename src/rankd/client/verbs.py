"""Methods made of descriptions: a verb is written once, in calls.py, and each driver sends it in its own way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import TypeVar

Method = TypeVar("Method", bound=Callable[..., object])


def as_method(method: Method, describe: Callable[..., object]) -> Method:
    """Give a method the name, the words and the parameters of the verb it sends, so that help() shows them."""
    update_wrapper(method, describe)
    signature = inspect.signature(describe)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [first, *signature.parameters.values()]
    answer = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=answer
    )
    return method

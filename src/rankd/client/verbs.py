"""Client methods from calls: calls.py describes each operation once, and each driver sends it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import TypeVar

Method = TypeVar("Method", bound=Callable[..., object])


def as_method(method: Method, describe: Callable[..., object]) -> Method:
    """Give a method the name, the docstring and the parameters of its call, so that help() shows them."""
    update_wrapper(method, describe)
    signature = inspect.signature(describe)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [first, *signature.parameters.values()]
    answer = str(signature.return_annotation).removeprefix("ClientCall[").removesuffix("]")
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=answer
    )
    return method

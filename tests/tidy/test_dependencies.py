"""Every package is pinned, and the few the product needs are among them."""

from __future__ import annotations

import re
import tomllib

from .repository import ROOT

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(requirement: str) -> str:
    """Return a package's name as indexes compare it."""
    named = NAME.match(requirement)
    assert named is not None, requirement
    return re.sub(r"[-_.]+", "-", named[0]).lower()


def lines(name: str) -> list[str]:
    return [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]


def test_constraints_are_exact() -> None:
    assert not [line for line in lines("constraints.txt") if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.]*", line)]


def test_whatever_is_asked_for_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"], *lines("requirements-dev.txt")]
    pinned = {normal(line) for line in lines("constraints.txt")}

    assert {normal(requirement) for requirement in asked} <= pinned


def test_what_make_installs_holds_what_the_product_needs() -> None:
    """The product is installed without its dependencies, so that pip looks at the pinned ones only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    groups = [requirement for group in project["dependency-groups"].values() for requirement in group]
    installed = {normal(line) for line in lines("requirements-dev.txt")}

    assert {normal(requirement) for requirement in [*needed, *groups]} <= installed

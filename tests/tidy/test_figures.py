"""docs/runbook.md explains every figure that a projector tells, and no other."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from rankd.node.projector_figures import ProjectorFigures

from .repository import ROOT

OWN = "rankd_projector_"
NAME = re.compile(rf"{OWN}\w+")
ENDINGS = ("_total", "_created", "_bucket", "_count", "_sum")


def test_every_figure_of_a_projector_is_explained() -> None:
    families = text_string_to_metric_families(ProjectorFigures().text().decode())
    shown = {family.name for family in families if family.name.startswith(OWN) and not family.name.endswith("_created")}
    named = {name.removesuffix("_total") for name in NAME.findall((ROOT / "docs" / "runbook.md").read_text())}

    assert shown == named

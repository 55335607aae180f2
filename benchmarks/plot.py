"""Draws how cost grows with the board, ours beside the rivals', from kept results: `python -m benchmarks.plot --help`.

The same results give the same file to the byte: no date, no random ids.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator

from benchmarks.figures import RANKD, REDIS, SORTED
from benchmarks.isolated import ROOT
from benchmarks.report import RESULTS, Report, read_report

OUT = ROOT / "docs" / "growth.svg"
PANELS = (
    ("updates", "batch updates", "ns per update"),
    ("ranks", "batch ranks", "ns per rank"),
    ("rank_call", "one rank a call", "ns per call"),
    ("around_call", "around ±5 a call", "ns per call"),
    ("top100_call", "top 100 a call", "ns per call"),
    ("memory_first_board", "memory, first board", "bytes per player"),
)
STYLES = {
    RANKD: {"color": "#0b6e4f", "marker": "o", "linestyle": "-", "label": "rankd"},
    REDIS: {"color": "#b3261e", "marker": "s", "linestyle": "--", "label": "Redis (raw socket; redis-py for calls)"},
    SORTED: {"color": "#5f6368", "marker": "^", "linestyle": ":", "label": "sortedcontainers"},
}
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "rankd",
    "svg.fonttype": "path",
    "font.size": 10,
    "figure.facecolor": "white",  # a page may be dark: the picture brings its own paper
    "savefig.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
TICKS = {10_000: "10 K", 100_000: "100 K", 1_000_000: "1 M", 10_000_000: "10 M", 100_000_000: "100 M"}

Costs = dict[tuple[str, str], dict[int, float]]
"""(row, contender) → entries → cost."""


def costs_of(reports: Sequence[Report]) -> Costs:
    """Gather the medians; where two reports have the same row, the later one counts."""
    costs: Costs = {}
    for report in reports:
        for row in report.rows:
            for contender in row.samples:
                if (cost := row.cost(contender)) is not None:
                    costs.setdefault((row.name, contender), {})[row.entries] = cost
    return costs


def draw(costs: Costs, out: Path) -> None:
    with mpl.rc_context(SETTINGS):
        figure, grid = plt.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
        for axes, (name, title, unit) in zip(grid.flat, PANELS, strict=True):
            _panel(axes, costs, name, title, unit)
        drawn: dict[str, Any] = {}
        for axes in grid.flat:
            for line, label in zip(*axes.get_legend_handles_labels(), strict=True):
                drawn.setdefault(label, line)
        figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=len(STYLES), frameon=False)
        figure.suptitle("Cost as the board grows, random players and scores (less is better)")
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _panel(axes: Any, costs: Costs, name: str, title: str, unit: str) -> None:
    for contender, style in STYLES.items():
        if points := costs.get((name, contender)):
            entries = sorted(points)
            axes.plot(entries, [points[count] for count in entries], markersize=4, linewidth=1.6, **style)
    axes.set_xscale("log")
    if name.startswith("memory"):
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda cost, _: f"{cost:,.0f}"))
    axes.set_title(title)
    axes.set_ylabel(unit)
    shown = {count for (row, _), points in costs.items() if row == name for count in points}
    ticks = {count: text for count, text in TICKS.items() if count in shown}
    if ticks:
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.minorticks_off()
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plot",
        description="Draw how cost grows with the board from one or more kept results.",
        epilog="example: python -m benchmarks.plot benchmarks/results/2026-11-15T0900Z.json",
    )
    parser.add_argument(
        "results", nargs="*", type=Path, help="kept results; of equal rows the last counts (default: newest)"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="the SVG to write (default: docs/growth.svg)")
    asked = parser.parse_args(given)
    paths = asked.results or sorted(RESULTS.glob("*.json"))[-1:]
    if not paths:
        parser.error("there are no results yet: run `python -m benchmarks` first")
    draw(costs_of([read_report(path) for path in paths]), asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

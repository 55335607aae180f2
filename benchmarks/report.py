"""Shows rows as a table and keeps them as JSON, with the machine described but never named."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import RANKD, REDIS, RIVALS, SORTED, Row, Scale
from benchmarks.isolated import ROOT
from benchmarks.redis_server import redis_version

RESULTS = ROOT / "benchmarks" / "results"
FORMAT = 1
PACKAGES = ("rankd", "apsw", "granian", "msgspec", "uvloop", "numpy", "redis", "hiredis", "sortedcontainers")
HEAD = ("row", "entries", "rankd", "redis", "ratio", "beside", "ratio", "target", "", "checksum")
BUSY_SHARE = 0.5  # of the cores
SHORT_NAMES = {SORTED: "sorted"}


class Outcome(msgspec.Struct, kw_only=True):
    """What a row says, worked out for those who only read the JSON; `ratios` are rival ÷ rankd."""

    name: str
    entries: int
    unit: str
    medians: dict[str, float]
    ratios: dict[str, float]
    verdict: str | None
    checksums_agree: bool | None


class Report(msgspec.Struct, kw_only=True):
    """One run as it is kept."""

    format: int = FORMAT
    at: str
    smoke: bool
    machine: dict[str, str]
    versions: dict[str, str | None]
    settings: dict[str, Any]
    rows: list[Row]
    outcomes: list[Outcome]


def report_of(rows: Sequence[Row], scale: Scale, load_before: float) -> Report:
    """`load_before` is the machine's load average when the run began."""
    return Report(
        at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        smoke=scale.smoke,
        machine={**_machine(), "load_average_before": f"{load_before:.1f}"},
        versions=_versions(),
        settings=asdict(scale),
        rows=list(rows),
        outcomes=[_outcome(row) for row in rows],
    )


def _outcome(row: Row) -> Outcome:
    return Outcome(
        name=row.name,
        entries=row.entries,
        unit=row.unit,
        medians={name: cost for name in row.samples if (cost := row.cost(name)) is not None},
        ratios={rival: ratio for rival in row.samples if rival != RANKD and (ratio := row.ratio(rival)) is not None},
        verdict=row.verdict(),
        checksums_agree=row.checksums_agree(),
    )


def write_report(report: Report, path: Path | None) -> Path:
    """Keep the report; without a path under benchmarks/results, named by its minute."""
    if path is None:
        path = RESULTS / f"{report.at.replace(':', '')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return path


def read_report(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out in columns; times are per operation, a ratio is rival ÷ rankd."""
    lines = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    shown = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in (0, len(HEAD) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown.append("  ".join(cells).rstrip())
    return "\n".join([shown[0], "─" * max(map(len, shown)), *shown[1:]])


def summary(rows: Sequence[Row]) -> str:
    """Say how many targets were reached, which were not and by how much, and where a rival is better."""
    judged = [row for row in rows if row.verdict() is not None]
    missed = [row for row in judged if row.verdict() == "miss"]
    reached = f"{len(judged) - len(missed)} of {len(judged)} targets reached"
    lines = [reached if judged else "no target at these sizes"]
    lines += [
        f"missed: {row.name} at {size_text(row.entries)}: {_shortfall(row)}" for row in missed if not row.failures
    ]
    lines += [
        f"lost: {row.name} at {size_text(row.entries)}: {rival} is {1 / ratio:.2f}x better"
        for row in rows
        for rival in RIVALS
        if (ratio := row.ratio(rival)) is not None and ratio < 1
    ]
    lines += [
        f"CHECKSUMS DIFFER: {row.name} at {size_text(row.entries)}: {row.checksums}"
        for row in rows
        if row.checksums_agree() is False
    ]
    lines += [
        f"FAILED: {row.name} at {size_text(row.entries)}: {'; '.join(row.failures)}" for row in rows if row.failures
    ]
    return "\n".join(lines)


def busy_warning(load_before: float) -> str:
    """Say that figures are noisy when others used the machine as the run began; a run alone begins near 0.

    >>> busy_warning(0.0)
    ''
    """
    cores = os.cpu_count() or 1
    if load_before < BUSY_SHARE * cores:
        return ""
    return (
        f"NOISY: the load average was {load_before:.1f} on {cores} cores before the run began. Times of two processes "
        "grow more than those of one, so ratios to Redis are flattering: run it again on an idle machine"
    )


def extras(rows: Sequence[Row]) -> str:
    """List what stands beside the rows: notes and further figures."""
    lines = []
    for row in rows:
        further = ", ".join(f"{name} {_number(value)}" for name, value in row.extra.items())
        if further or row.note:
            details = "; ".join(filter(None, (row.note, further)))
            lines.append(f"  {row.name} at {size_text(row.entries)}: {details}")
    return "\n".join(lines)


def size_text(entries: int) -> str:
    """Write a size shortly.

    >>> size_text(10_000_000), size_text(30_000), size_text(1_234)
    ('10 M', '30 K', '1,234')
    """
    for unit, factor in (("M", 1_000_000), ("K", 1_000)):
        if entries >= factor and entries % factor == 0:
            return f"{entries // factor} {unit}"
    return f"{entries:,}"


def cost_text(cost: float | None, unit: str) -> str:
    """Write a cost with a unit a person reads easily.

    >>> cost_text(1234.5, "ns_per_update"), cost_text(61.25, "bytes_per_player"), cost_text(None, "seconds")
    ('1.23 µs', '61.2 B', '')
    """
    if cost is None:
        return ""
    if unit == "seconds":
        cost *= 1e9
    steps = (("B", 1.0), ("MiB", 2.0**20), ("GiB", 2.0**30)) if unit.startswith("bytes") else _TIME_STEPS
    name, factor = next(((n, f) for n, f in reversed(steps) if cost >= f), steps[0])
    value = cost / factor
    return f"{value:.0f} {name}" if value >= 1000 else f"{value:.3g} {name}"


_TIME_STEPS = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9))


def _cells(row: Row) -> tuple[str, ...]:
    agree = row.checksums_agree()
    beside = next((name for name in row.samples if name not in (RANKD, REDIS)), None)
    return (
        row.name,
        size_text(row.entries),
        cost_text(row.cost(RANKD), row.unit),
        cost_text(row.cost(REDIS), row.unit),
        _ratio_text(row.ratio(REDIS)),
        "" if beside is None else f"{SHORT_NAMES.get(beside, beside)} {cost_text(row.cost(beside), row.unit)}",
        "" if beside is None else _ratio_text(row.ratio(beside)),
        _target_text(row),
        row.verdict() or "",
        "" if agree is None else "equal" if agree else "DIFFERS",
    )


def _ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def _target_text(row: Row) -> str:
    if row.target is None:
        return ""
    if row.target.ratio_min is not None:
        return f"≥ {row.target.ratio_min:g}x"
    return f"≤ {cost_text(row.target.cost_max, row.unit)}"


def _shortfall(row: Row) -> str:
    if row.target is not None and row.target.ratio_min is not None:
        return f"{row.ratio(row.target.rival):.2f}x of {row.target.rival} in place of {row.target.ratio_min:g}x"
    return f"{cost_text(row.cost(RANKD), row.unit)} in place of {_target_text(row)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _machine() -> dict[str, str]:
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _after("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": str(os.cpu_count()),
        "memory_gib": f"{memory_bytes / 2**30:.0f}",
        "system": (_after("/etc/os-release", "PRETTY_NAME") or platform.system()).strip('"'),
        "huge_pages": _first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
    }


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version(), "redis-server": redis_version()}
    for package in PACKAGES:
        try:
            versions[f"{package}-py" if package == "redis" else package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    versions["commit"] = _commit()
    return versions


def _commit() -> str | None:
    try:
        asked = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return asked.stdout.strip() or None


def _after(path: str, name: str) -> str | None:
    """Return the value of the first `name : value` or `name=value` line of a file."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(name):
            return line.removeprefix(name).lstrip("\t :=").strip()
    return None


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().splitlines()[0]
    except (OSError, IndexError):
        return "unknown"

"""What an archive in a folder holds, read without rankd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet  # type: ignore[import-untyped]


def parquet_files(archive: Path) -> list[Path]:
    """Return the files of standings, by path."""
    return sorted((archive / "standings").rglob("*.parquet"))


def rows_of(file: Path, scope: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a file, of one scope or of all."""
    with pyarrow.parquet.ParquetFile(file) as opened:
        rows: list[dict[str, Any]] = opened.read().to_pylist()
    return [row for row in rows if scope in (None, row["scope"])]


def players_of(file: Path, scope: str = "global") -> list[str]:
    """Return the players of a scope, in the order of the file."""
    return [row["player"] for row in rows_of(file, scope)]


def manifests(archive: Path) -> list[dict[str, Any]]:
    """Return the manifests, by path."""
    return [json.loads(path.read_bytes()) for path in sorted((archive / "standings").rglob("manifest-*.json"))]

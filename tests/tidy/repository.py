"""What the repository holds, for rules that look at all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (".py", ".pyi")
NATIVE = (".cpp", ".hpp")
DOCUMENTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "docs/**/*.md")


@cache
def files() -> tuple[Path, ...]:
    """Return every file that is, or is about to be, committed: all but what .gitignore names."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line]
    return tuple(sorted(_below(ROOT, [*ignored, ".git"])))


def _below(folder: Path, ignored: list[str]) -> Iterator[Path]:
    for path in folder.iterdir():
        if any(fnmatch(path.name, pattern) for pattern in ignored):
            continue
        if path.is_dir():
            yield from _below(path, ignored)
        else:
            yield path


def files_ending(*suffixes: str, under: str = "") -> list[Path]:
    """Return the files of some kinds below a folder."""
    return [path for path in files() if path.suffix in suffixes and path.is_relative_to(ROOT / under)]


def documents() -> list[Path]:
    """Return everything that is written to be read."""
    return sorted(path for pattern in DOCUMENTS for path in ROOT.glob(pattern))


def shown(path: Path) -> str:
    """Return a path as people write it."""
    return path.relative_to(ROOT).as_posix()


def blocks(document: Path, language: str | None = None) -> list[str]:
    """Return the fenced blocks of a document, all of them or those of one language."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    return [block for marked, block in fenced if language in (None, marked)]


def spans(document: Path) -> list[str]:
    """Return what stands between single backquotes, outside fenced blocks."""
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def links(document: Path) -> list[str]:
    """Return the targets of a document's links and pictures."""
    return re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text())

"""A folder on a real disk for what a benchmark writes: in memory, a sync would cost nothing and the figures lie."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.isolated import ROOT

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
MOUNTS = Path("/proc/self/mounts")


@contextmanager
def folder_on_disk() -> Iterator[Path]:
    """Make a folder, in the system's place for such folders if that is on a disk, and remove it afterwards."""
    places = [Path(tempfile.gettempdir()), ROOT / "build"]
    place = next((place for place in places if place.is_dir() and file_system_of(place) not in IN_MEMORY), None)
    if place is None:
        raise RuntimeError("no folder on a disk was found: set TMPDIR to one")
    with tempfile.TemporaryDirectory(prefix="rankd-bench-", dir=place) as name:
        yield Path(name)


def file_system_of(path: Path) -> str:
    """Return the kind of file system a path is on, such as ext4."""
    real = path.resolve()
    mount = ("unknown", Path("/"))
    for line in MOUNTS.read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        if real.is_relative_to(point) and len(Path(point).parts) >= len(mount[1].parts):
            mount = (kind, Path(point))
    return mount[0]


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

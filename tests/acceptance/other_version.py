"""Other versions of rankd: copies of the package with other version numbers, which processes are started from."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import rankd
import rankd._engine

# Whoever has `src` installed for development finds it before everything else.
_SITE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "_editable_skbc_rankd"]
"""
_SCRIPTS = ("ledger/postgres/schema", "scaled/schema", "registry/postgres_schema", "registry/standings_schema")
PACKAGE_VERSION = "0.99.0"


def make_version(
    folder: Path,
    *,
    functions: int = 1,
    payload_known: int = 1,
    payload_written: int = 1,
    saved: int = 1,
    scripts: tuple[int, ...] = (),
) -> dict[str, str]:
    """Make a copy of the package and return the environment that starts it.

    `functions`, `payload_known`, `payload_written` and `saved` (snapshots and checkpoints) are its version numbers.
    Each of `scripts` is one more script of every schema, and says from which version on what it leaves is
    usable.
    """
    package = folder / "rankd"
    shutil.copytree(Path(rankd.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for module in Path(rankd._engine.__file__).parent.glob("*.so"):
        shutil.copy(module, package)
    (folder / "sitecustomize.py").write_text(_SITE)
    about = folder / f"rankd-{PACKAGE_VERSION}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rankd\nVersion: {PACKAGE_VERSION}\n")

    _set(package / "projection/redis/library.py", "LIBRARY_VERSION", functions)
    _set(package / "ledger/event.py", "PAYLOAD_VERSION", payload_known)
    _set(package / "ledger/event.py", "PAYLOAD_WRITTEN", payload_written)
    _set(package / "scaled/checkpoints.py", "FORMAT", saved)
    _set(package / "projection/snapshots.py", "STATE_VERSION", saved)
    for schema in _SCRIPTS:
        for usable_from in scripts:
            number = 1 + len(list((package / schema).glob("*.sql")))
            table = f"later_{schema.replace('/', '_')}_{number}"
            script = f"-- usable from version {usable_from}\nCREATE TABLE {table} (one integer);\n"
            (package / schema / f"{number:04}_later.sql").write_text(script)
    return {"PYTHONPATH": str(folder)}


def _set(file: Path, name: str, value: int) -> None:
    changed, count = re.subn(rf"(?m)^{name} = \d+", f"{name} = {value}", file.read_text())
    assert count == 1, f"{file.name} has no line {name} = …"
    file.write_text(changed)

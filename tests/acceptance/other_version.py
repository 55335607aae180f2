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
_SCHEMAS = ("ledger/postgres/schema", "node/schema", "registry/postgres/schema", "registry/postgres/standings_schema")
PACKAGE_VERSION = "0.99.0"


def make_version(
    folder: Path,
    *,
    functions: int = 0,
    payload_known: int = 0,
    payload_written: int = 0,
    saved: int = 0,
    scripts: int = 0,
) -> dict[str, str]:
    """Make a copy of the package and return the environment that starts it.

    Each number says how far it is ahead of us: the functions in Redis, the events it reads and those it writes, what is
    saved in snapshots and checkpoints, and the scripts of every schema, which leave what the version before can use.
    """
    package = folder / "rankd"
    shutil.copytree(Path(rankd.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for module in Path(rankd._engine.__file__).parent.glob("*.so"):
        shutil.copy(module, package)
    (folder / "sitecustomize.py").write_text(_SITE)
    about = folder / f"rankd-{PACKAGE_VERSION}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rankd\nVersion: {PACKAGE_VERSION}\n")

    _raise(package / "redis/connection/library.py", "LIBRARY_VERSION", functions)
    _raise(package / "ledger/event.py", "PAYLOAD_VERSION", payload_known)
    _raise(package / "ledger/event.py", "PAYLOAD_WRITTEN", payload_written)
    _raise(package / "projection/checkpoints.py", "FORMAT", saved)
    for schema in _SCHEMAS:
        for _ in range(scripts):
            before = len(list((package / schema).glob("*.sql")))
            table = f"later_{schema.replace('/', '_')}_{before + 1}"
            script = f"-- usable from version {before}\nCREATE TABLE {table} (one integer);\n"
            (package / schema / f"{before + 1:04}_later.sql").write_text(script)
    return {"PYTHONPATH": str(folder)}


def _raise(file: Path, name: str, by: int) -> None:
    def raised(match: re.Match[str]) -> str:
        return f"{name} = {int(match[1]) + by}"

    changed, count = re.subn(rf"(?m)^{name} = (\d+)", raised, file.read_text())
    assert count == 1, f"{file.name} has no line {name} = …"
    file.write_text(changed)

"""What a user does first: install the package in a clean environment and rank somebody."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 300
COMPILES = pytest.mark.timeout(WAIT_S + 30)  # where nothing was compiled before
FIRST_USE = """
from array import array

import rankd
from rankd.domain.instance import InstanceKey
from rankd.domain.order import Rules
from rankd.projection.engine import EngineStore
from rankd.projection.port import UpdateBatch

store, arcade = EngineStore(), InstanceKey("arcade")
store.apply(UpdateBatch([(arcade, Rules())], ["alice", "bob"], array("q", [976, 965]), upto=2))
print(rankd.__version__, store.rank(arcade, "bob").rank, rankd.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by the pinned tools of this environment from what `make setup` has compiled."""
    dist = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist, ROOT, cwd=dist)
    (path,) = dist.glob("*.whl")
    return path


@COMPILES
def test_the_wheel_holds_the_product_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}

    assert {"rankd"} | {top for top in tops if top.endswith(".dist-info")} == tops
    assert any(name.startswith("rankd/_engine.") and name.endswith(".so") for name in names)
    assert {"rankd/py.typed", "rankd/projection/port.py"} <= set(names)
    assert any(name.endswith("LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.endswith((".cpp", ".hpp", ".a"))]


@COMPILES
def test_it_installs_and_ranks_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "clean"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pinned = ROOT / "constraints.txt"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "-c", pinned, wheel, cwd=tmp_path)

    version, rank, where = run(python, "-c", FIRST_USE, cwd=tmp_path).split()

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (version, rank) == (declared, "2")
    assert Path(where).is_relative_to(home)

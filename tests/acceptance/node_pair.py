"""Two nodes under load, which may be killed and come back."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.waiting import wait_until

from .keyed_load import BOARDS, KeyedLoad
from .scaled_serving import Nodes, nodes_installed
from .serving import Serving, free_port

SEED = 7
LEASE_MOVES_S = 30.0


class Pair:
    """Two nodes under load, which may be killed and come back."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self._ports = {name: free_port() for name in "ab"}
        self.by_name = {name: nodes.start_node(name, port) for name, port in self._ports.items()}
        for serving in self.by_name.values():
            serving.wait_until_ready()
        with self.by_name["a"].client(nodes.admin) as client:
            for board, definition in BOARDS.items():
                assert client.put(f"/v1/boards/{board}", json=definition).status_code == 200
        knows_repeats = nodes.stores.registry_url == ""
        self.load = KeyedLoad(list(self.by_name.values()), nodes.admin, SEED, knows_repeats=knows_repeats)

    @property
    def holder(self) -> str:
        """The node that does what is timed."""
        pids = {serving.process.pid: name for name, serving in self.by_name.items()}
        wait_until(lambda: self.nodes.lease_holder() in pids, LEASE_MOVES_S)
        return pids[self.nodes.lease_holder()]

    def kill(self, name: str) -> None:
        self.by_name[name].stop(signal.SIGKILL)

    def start(self, name: str) -> Serving:
        """Start a node again, where it was; under load, it takes requests as soon as it is ready."""
        self.by_name[name] = self.nodes.start_node(name, self._ports[name])
        self.by_name[name].wait_until_ready()
        return self.by_name[name]

    def refusals(self, name: str) -> dict[str, int]:
        """Return the answers of a node that were none."""
        return dict(self.load.refusals.get(self.by_name[name].url, {}))

    def finish(self) -> None:
        """Compare all that was acknowledged with what each node ranks, and each node with the ledger."""
        self.load.go_on_for()
        self.load.check(*self.by_name.values())
        self.load.close()
        for name, serving in self.by_name.items():
            assert serving.stop() == 0
            proof = self.nodes.command(name, "verify", "--json")
            assert proof.returncode == 0, proof.stderr

    def kill_some(self, kills: int) -> None:
        """Kill one of them by chance, again and again, and start it again; the other one refuses nothing."""
        rng = random.Random(SEED)
        for _ in range(kills):
            self.load.go_on_for()
            killed = rng.choice(["a", "b"])
            before = self.refusals(other(killed))
            self.kill(killed)
            self.load.go_on_for()
            self.start(killed)
            assert self.refusals(other(killed)) == before, "the node that lived refused something"
        assert self.holder in self.by_name


@contextmanager
def running_pair(folder: Path, environment: Mapping[str, str] = {}, brokers_url: str | None = None) -> Iterator[Pair]:
    """Run two nodes under load, and what they need."""
    needs_postgres()
    with nodes_installed(folder, environment, brokers_url) as nodes:
        pair = Pair(nodes)
        with closing(pair.load):
            yield pair


def other(name: str) -> str:
    """Return the name of the other node."""
    return "b" if name == "a" else "a"

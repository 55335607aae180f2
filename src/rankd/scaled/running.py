"""An API process of a scaled-out installation while it runs: the same stages as embedded, other parts.

requests → Writer → PostgreSQL          reads → Redis, names and metadata joined in
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from rankd.backend import Figures, Started
from rankd.background import require_thread
from rankd.clock import Clock
from rankd.domain.instance import InstanceKey
from rankd.errors import Refused, Unavailable
from rankd.intake.changes import Changes
from rankd.intake.definitions import Definitions
from rankd.intake.newcomers import Newcomers
from rankd.intake.writer import Writer
from rankd.ledger.event import event_id, place_of
from rankd.ledger.port import Ledger, PastEvent
from rankd.projection.port import RankStore
from rankd.projection.verify import Report
from rankd.reads.joined import Joined
from rankd.registry.port import Profile, Registry
from rankd.scaled.answering import Answering, ShareRates
from rankd.scaled.boards_in_redis import check_board
from rankd.scaled.lane import Together
from rankd.scaled.served import LookAtRedis
from rankd.scaled.upkeep import LedgerUpkeep
from rankd.settings import Settings

HeldProfiles = Callable[[Sequence[str]], Mapping[str, Profile] | None]
_log = logging.getLogger("rankd")


class CoalescedMetadata:
    """Metadata by the number of its event, as reads ask for it."""

    def __init__(self, ledger: Ledger) -> None:
        """Asked for what is not in memory."""
        self._ledger = ledger
        self._together: Together[Sequence[int], dict[int, str]] = Together(self._of_everybody, is_slow=True)

    def metadata(self, sequences: Sequence[int]) -> dict[int, str]:
        """Return the metadata (JSON) of those events that have some."""
        require_thread()
        return self._together.ask(sequences)

    def _of_everybody(self, asked: list[Sequence[int]]) -> list[dict[int, str]]:
        found = self._ledger.metadata([place_of(one) for sequences in asked for one in sequences])
        known = {event_id(*place): json for place, json in found.items()}
        return [known] * len(asked)


class Names:
    """Profiles, as reads ask for them: from memory, or together with those of other reads."""

    def __init__(self, registry: Registry, held: HeldProfiles) -> None:
        """`held` returns the profiles of players where all of them are in memory."""
        self._registry = registry
        self._held = held
        self._together: Together[Sequence[str], Mapping[str, Profile]] = Together(self._of_everybody, is_slow=True)

    @property
    def changes(self) -> int:
        """How often a profile was changed since the start."""
        return self._registry.changes

    def profiles(self, players: Sequence[str]) -> Mapping[str, Profile]:
        """Return the profiles of those players who have one."""
        held = self._held(players)
        if held is not None:
            return held
        require_thread()
        return self._together.ask(players)

    def _of_everybody(self, asked: list[Sequence[str]]) -> list[Mapping[str, Profile]]:
        found = self._registry.profiles([player for players in asked for player in players])
        return [{player: found[player] for player in players if player in found} for players in asked]


class SharedRunning:
    """Everything between opening a scaled-out installation and closing it, in one API process."""

    def __init__(
        self,
        ledger: Ledger,
        definitions: Definitions,
        registry: Registry,
        looking: LookAtRedis,
        *,
        clock: Clock,
        settings: Settings,
        let_go: Callable[[], None],
        held_profiles: HeldProfiles = lambda _players: None,
        share_rates: ShareRates | None = None,
        meet: Callable[[Sequence[str]], None] = lambda _players: None,
        make_months: Callable[[int], None] = lambda _now: None,
    ) -> None:
        """`let_go` closes whatever was opened for it; `meet` lets players be found who have no profile."""
        self.clock = clock
        self.settings = settings
        self.applier = definitions.applier
        self.registry = registry
        self.looking = looking
        self.started = Started(0, None, 0, 0, 0.0)
        self._ledger = ledger
        self._definitions = definitions
        newcomers = Newcomers()
        self._shared = Writer(ledger, definitions, registry, clock, settings, newcomers=newcomers)
        self.writer = Answering(
            self._shared,
            ledger,
            looking,
            clock=clock,
            wait_ms=settings.at_least_wait_ms,
            share_rates=share_rates,
        )
        self.changes = Changes(
            self._shared,
            ledger,
            definitions,
            is_there=self._is_there,
            instances_per_event_max=settings.instances_per_event_max,
            check_board=check_board,
        )
        self.joined = Joined(
            self.applier.state, CoalescedMetadata(ledger), Names(registry, held_profiles), settings.metadata_cached_max
        )
        self.remote = self.writer
        self._events = sum(self.writer.look_at_ledger().sequences)
        self._let_go = let_go
        self._is_closed = False
        self._upkeep = LedgerUpkeep(
            ledger,
            newcomers,
            clock,
            settings.idempotency_ttl_ms,
            meet=meet,
            make_months=make_months,
            also=self._look_around,
        )

    def watch_commits(self, _committed: Callable[[], None]) -> None:
        """Refuse: what is committed here is ranked by another process, which has to be asked."""
        raise AssertionError("ranks are made by another process")

    def figures(self) -> Figures:
        """Return how much there is."""
        return Figures(self._events, None, 0, 0)

    def entries_by_board(self, _boards_max: int) -> dict[str, int]:
        """Return nothing: what is ranked is counted where it is ranked."""
        return {}

    def history(self, player: str, limit: int, before: int | None, board: str | None) -> list[PastEvent]:
        """Return a player's own events, the newest first."""
        return self._ledger.history(player, limit, before, board)

    @property
    def rank_store(self) -> RankStore:
        """Refuse: the ranks are in Redis."""
        raise Refused("ranks are in Redis, not in this process")

    def snapshot(self) -> None:
        """Refuse: the projector keeps its own."""
        raise Refused("there is nothing to take a snapshot of: the ranks are in Redis, and the projector saves its own")

    def settle(self) -> None:
        """Know the newest definitions."""
        self._definitions.catch_up()

    def verify(self, _progress: Callable[[int], None] = lambda _sequence: None) -> Report:
        """Refuse: that is a role of its own."""
        raise Refused("use `rankd verify`, which compares Redis with the ledger")

    def close(self) -> None:
        """Finish what is under way and let everything go."""
        if not self._is_closed:
            self._is_closed = True
            self._upkeep.close()
            self._shared.close()
            self._let_go()

    def _is_there(self, board_id: str, player: str) -> bool:
        board = self._shared.find_board(board_id)
        if board is None:
            return False
        keys = [InstanceKey(board_id, one) for _, one in board.instances_of(board.read_clock(self._shared.at))]
        try:
            return any(self.looking.look(key).store.score(key, player) is not None for key in keys)
        except Unavailable:
            return True  # a player is taken out whether or not ranks can be read

    def _look_around(self) -> None:
        self._definitions.catch_up()
        self._events = sum(self.writer.look_at_ledger().sequences)

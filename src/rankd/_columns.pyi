"""
Turns columns of events into columns of rows, without Python code for each item.
"""

from typing import Any

def first_odd(ids: list[Any], begin: int, end: int, bytes_max: int) -> int:
    """
    The first of some ids that is not plain printable ASCII of at most so many bytes; `end` when all are.
    """

def extent(column: object) -> tuple[int, int]:
    """The least and the greatest of a column of 64-bit integers."""

def distinct(items: list[Any]) -> tuple[list[Any], bytes]:
    """
    The objects of a list, each once in the order they come, and as uint32 which of them each item is.
    """

def distinct_mappings(items: list[Any]) -> tuple[list[Any], bytes]:
    """
    As `distinct`; dicts that hold the same text, whole numbers and None in the same order are one.
    """

def distinct_rows(columns: list[list[Any]]) -> tuple[list[list[Any]], bytes]:
    """
    As `distinct`, of the rows of some columns; those with the same text, whole numbers and None are one.
    """

def plain_json(mappings: list[Any], bytes_max: int) -> tuple[list[str | None], list[int]]:
    """
    Compact JSON of mappings that hold nothing unusual, None for None; and the indices of the others.
    """

def take(items: list[Any], index: object) -> list[Any]:
    """The items that a column of uint32 names."""

def divided(column: object, divisor: int) -> bytes:
    """A column of int64 divided by a number and rounded down."""

def rising(times: object, at: object, sent: object | None, last: int) -> tuple[bytes, bytes] | None:
    """
    The record times of a log's events, none before `last` or the one before it, and the events' own instants,
    which follow where the sender gave none (`sent` is 0); None where that changes nothing.
    """

def pack_places(
    hashes: object, scores: object, hash_bits: int, leaves_out: bool
) -> tuple[int, bool, bytes, bytes, bytes, bytes, bytes, bytes, bytes] | None:
    """
    Places and scores in standing order, packed to be searched by hash: how many players, whether scores fall,
    hashes (firsts, begins, bits), ranks, and scores (firsts, begins, bits). None where hashes are equal.
    """

def expand(
    group: object,
    offsets: object,
    entry_board: object,
    entry_instance: object,
    sent: object,
    scores: list[Any],
    ties: list[Any],
    lowest: object,
    highest: object,
) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """
    Events by group to rows: instance, event, score and tie of each, and which entries have any.
    """

def changes(
    instance: object,
    event: object,
    tie: object,
    flags: object,
    before: object,
    after: object,
    offsets: object,
    wholes: object,
    subjects: object | None,
    whole_count: int,
    as_kept: bool,
    is_folded: bool,
) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bool]:
    """
    What rows changed, as rows of totals.

    Total, event, change (or what is kept), tie, subject (by instance, or else the event) and source row of
    each; by how much each total can have grown and shrunk; whether all of it fits in 64 bits. Folded, it is the
    fewest rows that leave the same sums.
    """

def instances_with_metadata(instance: object, event: object, flags: object, has_metadata: object) -> list[int]:
    """
    The instances in which a row of an event with metadata changed something.
    """

def record_metadata_events(
    tables: list[MetadataIndex | None],
    instance: object,
    event: object,
    subject: object,
    flags: object,
    has_metadata: object,
    ids: list[str],
    first: int,
) -> None:
    """
    Record the events of rows that changed something; `first` is the number of the first event.
    """

def averages(
    instance: object,
    event: object,
    tie: object,
    flags: object,
    before: object,
    after: object,
    offsets: object,
    wholes: object,
    subjects: object,
    tables: list[TeamTotals],
    names: list[str],
    lowest: object,
    highest: object,
) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
    """
    Note the changes of players in the tables of their totals; return the rows of the teams' averages.

    Total, event, score, tie, team and source row of each.
    """

def contested_rows(instance: object, flags: object, before: object, has_best: object, best: object) -> bytes:
    """
    The changed rows of the instances in which a player who had the best score got another one, as uint32.
    """

def bests(
    instance: object,
    event: object,
    tie: object,
    flags: object,
    before: object,
    after: object,
    offsets: object,
    wholes: object,
    subjects: object,
    is_ascending: object,
    player: object,
    has_rest: object,
    rest: object,
) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
    """
    The rows of teams ranked by their best player, as `averages` returns them.

    `rest` is the best score, by instance, of those who have no changed row there.
    """

class MetadataIndex:
    """The numbers of events by player, stored by the hashes of player ids."""

    def __init__(self, key: bytes) -> None: ...
    @staticmethod
    def load(dumped: bytes) -> MetadataIndex: ...
    def dump(self) -> bytes: ...
    @property
    def key(self) -> bytes: ...
    def memory_bytes(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def get(self, player: str) -> int:
        """The number of an event, 0 for none."""

    def put(self, player: str, event: int) -> None: ...
    def remove(self, player: str) -> None: ...

class TeamTotals:
    """
    The sum and the number of players' scores by team, stored by the hashes of team names.
    """

    def __init__(self, key: bytes) -> None: ...
    @staticmethod
    def load(dumped: bytes) -> TeamTotals: ...
    def dump(self) -> bytes: ...
    @property
    def key(self) -> bytes: ...
    def memory_bytes(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def average(self, team: str) -> int | None:
        """Rounded down; None for a team without players."""

    def replace(self, team: str, before: int | None, after: int | None) -> None:
        """Note that a player's score changed; None is a player without one."""

class KeysSnapshot:
    """Recent keys as they were at an instant."""

    @property
    def key(self) -> bytes: ...
    @property
    def time(self) -> int: ...
    @property
    def part_count(self) -> int: ...
    def part(self, index: int) -> bytes:
        """The bytes of one part, for `restore`."""

    def __len__(self) -> int: ...

class RecentKeys:
    """The keys that one partition of a log has seen within a time to live."""

    def __init__(self, key: bytes, ttl_ms: int) -> None: ...
    def admit(self, keys: object, times: object) -> bytes | None:
        """
        Remember the keys of events, each 16 bytes of a digest and 16 of a fingerprint, all zero without one.

        Return None where all are fresh; else for each event 0 fresh, 1 repeated, 2 used with another fingerprint.
        """

    def snapshot(self) -> KeysSnapshot: ...
    def reserve(self, count: int) -> None:
        """Make room for so many keys to restore; there must be none."""

    def restore(self, part: bytes, time: int) -> None:
        """Add a part of a snapshot of keys with the same hash key, as of a time."""

    @property
    def time(self) -> int:
        """The log's time at the last key judged."""

    def memory_bytes(self) -> int: ...
    def check(self) -> None:
        """Fail where an invariant does not hold."""

    def __len__(self) -> int: ...

class DecayKeys:
    """The order keys of decaying scores; see rankd.domain.decay."""

    def __init__(self, logarithms: bytes, log2_e: bytes, fraction_bits: int, rate: bytes) -> None: ...
    def keys(self, scores: object, instants: object) -> tuple[bytes, list[int]]:
        """
        The keys as int64, and the indices of those that must be computed in decimals.
        """

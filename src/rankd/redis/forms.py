"""Encodes a kept score as a number and a member of a sorted set: packed where it fits, else prefixed.

    k = domain.order.score_key(score)      smaller is better, so ascending order is standing order
    t = domain.order.tie_key(tie)          smaller stands first

    packed    number = (k − lowest k) × 2^tie_bits + t'       member = player                   numbers are 0 … 2^53 − 1
              without ties, k may be below "lowest k" too: numbers are −2^53 … 2^53 − 1, the default score range
    prefixed  number = k >> 11                                member = 8 bytes ((k & 2047) << 48 | t) || player
              beside it a hash player → those 8 bytes, big-endian: the first two are the low 11 bits of k

Redis orders equal numbers by the members' bytes, so both forms order exactly as domain.order.sort_key does. t' is the
tie field in tie_bits: as it is, or 2^tie_bits − 1 minus it where the later score stands first.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import inf, nextafter
from struct import Struct

import msgspec

from rankd.domain.board import TIE_RESOLUTION_MS_DEFAULT
from rankd.domain.order import TIE_FIELD_MAX, Kept, Order, Rules, Ties, score_key, tie_key
from rankd.domain.score import TIEBREAK_MAX

NUMBER_BITS = 53  # integers a double holds exactly
PREFIX_BYTES = 8
LOW_BITS = 11  # of a score's key that the prefixed form keeps in the member
TIE_FIELD_BITS = 48
TIME_MS_MAX = 2**42 - 1  # the year 2109: later events need the prefixed form
_LOW_MASK = (1 << LOW_BITS) - 1
_PREFIX = Struct(">Q")

# Measured with ids of 13 bytes, a million entries in one sorted set; a longer id adds its length (twice if prefixed).
PACKED_ENTRY_BYTES = 110
PREFIXED_ENTRY_BYTES = 199
TAIL_ENTRY_BYTES = 32  # of a player below exact_top


class FormKind(StrEnum):
    """The two encodings of a score."""

    PACKED = "packed"
    PREFIXED = "prefixed"


class Form(msgspec.Struct, frozen=True):
    """The encoding of one instance's scores, with everything needed to decode them."""

    kind: FormKind
    order: Order
    ties: Ties
    lowest_key: int = 0  # packed only
    tie_bits: int = 0  # packed only

    @property
    def is_packed(self) -> bool:
        """Whether score and tie field share the number."""
        return self.kind is FormKind.PACKED

    @property
    def rules(self) -> Rules:
        """The order and ties of the instance; keep and bounds are defaults."""
        return Rules(order=self.order, ties=self.ties)

    def fits(self, score: int, tie: int) -> bool:
        """Return whether this form can encode a score."""
        if not self.is_packed:
            return True
        offset, end = self._key(score) - self.lowest_key, 1 << (NUMBER_BITS - self.tie_bits)
        if self.ties is Ties.PLAYER:
            return -end <= offset < end
        return 0 <= offset < end and 0 <= tie < 1 << self.tie_bits

    def encode(self, score: int, tie: int) -> tuple[int, bytes]:
        """Return the number and the member's prefix."""
        key = self._key(score)
        if self.is_packed:
            return (key - self.lowest_key << self.tie_bits) + self._packed_tie(tie), b""
        return key >> LOW_BITS, _PREFIX.pack((key & _LOW_MASK) << TIE_FIELD_BITS | tie_key(self.rules, tie))

    def decode(self, number: float, prefix: bytes = b"") -> Kept:
        """Decode the number and, in the prefixed form, the first 8 bytes of the member."""
        whole = int(number)
        if self.is_packed:
            return Kept(
                self._score((whole >> self.tie_bits) + self.lowest_key),
                self._packed_tie(whole & ((1 << self.tie_bits) - 1)),  # its own inverse
            )
        (low,) = _PREFIX.unpack(prefix)
        tie = low & TIE_FIELD_MAX
        if self.ties in (Ties.LATEST, Ties.VALUE):
            tie = TIE_FIELD_MAX - tie
        return Kept(self._score(whole << LOW_BITS | low >> TIE_FIELD_BITS), tie)

    def member(self, player: str, prefix: bytes = b"") -> bytes:
        """Return the sorted set member of a player."""
        return prefix + player.encode()

    def player(self, member: bytes) -> str:
        """Return the player of a member."""
        return (member if self.is_packed else member[PREFIX_BYTES:]).decode()

    # Columns

    def fits_all(self, score: Sequence[int], tie: Sequence[int]) -> bool:
        """Return whether this form can encode all of these scores."""
        if not self.is_packed or not score:
            return True
        return all(
            self.fits(extreme, tie_extreme)
            for extreme in (min(score), max(score))
            for tie_extreme in (() if self.ties is Ties.PLAYER else (min(tie), max(tie))) or (0,)
        )

    def encode_packed(self, score: Sequence[int], tie: Sequence[int]) -> list[str]:
        """Encode many scores in the packed form, as decimal text."""
        # One loop per case: this runs for every mirrored row.
        bits, most = self.tie_bits, (1 << self.tie_bits) - 1
        if self.order is Order.DESC:
            highest = ~self.lowest_key
            if self.ties is Ties.PLAYER:
                return [str(highest - value) for value in score]
            if self.ties is Ties.EARLIEST:
                return [str((highest - value << bits) + step) for value, step in zip(score, tie, strict=True)]
            return [str((highest - value << bits) + most - step) for value, step in zip(score, tie, strict=True)]
        lowest = self.lowest_key
        if self.ties is Ties.PLAYER:
            return [str(value - lowest) for value in score]
        if self.ties is Ties.EARLIEST:
            return [str((value - lowest << bits) + step) for value, step in zip(score, tie, strict=True)]
        return [str((value - lowest << bits) + most - step) for value, step in zip(score, tie, strict=True)]

    def encode_prefixed(self, score: Sequence[int], tie: Iterable[int]) -> tuple[list[str], bytes]:
        """Encode many scores in the prefixed form: numbers as decimal text, and prefixes of 8 bytes each."""
        keys: Sequence[int] = [~value for value in score] if self.order is Order.DESC else score
        match self.ties:
            case Ties.PLAYER:
                prefixes = array("Q", [(key & _LOW_MASK) << TIE_FIELD_BITS for key in keys])
            case Ties.EARLIEST:
                prefixes = array(
                    "Q", [(key & _LOW_MASK) << TIE_FIELD_BITS | step for key, step in zip(keys, tie, strict=True)]
                )
            case Ties.LATEST | Ties.VALUE:
                prefixes = array(
                    "Q",
                    [
                        (key & _LOW_MASK) << TIE_FIELD_BITS | TIE_FIELD_MAX - step
                        for key, step in zip(keys, tie, strict=True)
                    ],
                )
        return [str(key >> LOW_BITS) for key in keys], _big_endian(prefixes)

    def _key(self, score: int) -> int:
        return ~score if self.order is Order.DESC else score

    def _score(self, key: int) -> int:
        return ~key if self.order is Order.DESC else key

    def _packed_tie(self, tie: int) -> int:
        match self.ties:
            case Ties.EARLIEST:
                return tie
            case Ties.LATEST | Ties.VALUE:
                return (1 << self.tie_bits) - 1 - tie
            case Ties.PLAYER:
                return 0


class InstanceForm(msgspec.Struct, frozen=True, array_like=True):
    """An instance's entry in the `i` hash, a MessagePack array; later versions may only append to it."""

    kind: FormKind
    order: Order
    ties: Ties
    lowest_key: int
    tie_bits: int
    digest: str  # of the whole instance, over all shards: 32 hexadecimal digits
    total: int  # over all shards
    dense: bool = False  # the instance has `d` and `n`
    exact_top: int = 0  # players in the sorted set, the rest are in `s` and `t`; 0: all players

    @property
    def form(self) -> Form:
        """The encoding of its scores."""
        return Form(self.kind, self.order, self.ties, self.lowest_key, self.tie_bits)


def describe(form: Form, digest: int, total: int, *, dense: bool = False, exact_top: int = 0) -> InstanceForm:
    """Return the `i` hash entry of an instance in this form."""
    encoding = form.kind, form.order, form.ties, form.lowest_key, form.tie_bits
    return InstanceForm(*encoding, f"{digest:032x}", total, dense, exact_top)


_decoder = msgspec.msgpack.Decoder(InstanceForm)
_encoder = msgspec.msgpack.Encoder()


def read_described(value: bytes) -> InstanceForm:
    """Decode an `i` hash entry."""
    return _decoder.decode(value)


def written_described(described: InstanceForm) -> bytes:
    """Encode an `i` hash entry."""
    return _encoder.encode(described)


# Choice of the form


def prefixed_form(rules: Rules) -> Form:
    """Return the form that can encode any score."""
    return Form(FormKind.PREFIXED, rules.order, rules.ties)


def choose_form(rules: Rules, tie_resolution_ms: int = TIE_RESOLUTION_MS_DEFAULT) -> Form:
    """Return the packed form where the board's bounds and ties fit, else the prefixed form.

    >>> choose_form(Rules(score_min=0, score_max=1_000_000)).kind
    <FormKind.PACKED: 'packed'>
    """
    tie_bits, score_bits = _tie_bits(rules, tie_resolution_ms), _score_bits(rules)
    if score_bits + tie_bits > _number_bits(rules):
        return prefixed_form(rules)
    ends = score_key(rules, rules.score_min), score_key(rules, rules.score_max)
    lowest = min(ends)
    if score_bits > NUMBER_BITS:
        lowest += 1 << NUMBER_BITS  # half of them are negative
    lowest = _whole_double_below(lowest)
    if max(ends) - lowest >= 1 << (NUMBER_BITS - tie_bits):
        return prefixed_form(rules)
    return Form(FormKind.PACKED, rules.order, rules.ties, lowest, tie_bits)


def entry_bytes(form: Form, id_bytes: int = 13) -> int:
    """Estimate the bytes of Redis memory per player and instance."""
    longer = id_bytes - 13
    return PACKED_ENTRY_BYTES + longer if form.is_packed else PREFIXED_ENTRY_BYTES + 2 * longer


def explain_form(
    rules: Rules, tie_resolution_ms: int = TIE_RESOLUTION_MS_DEFAULT, exact_top: int | None = None
) -> list[str]:
    """Explain which form a board takes in Redis, why, its memory, and how to make it smaller."""
    form = choose_form(rules, tie_resolution_ms)
    score_bits, tie_bits, bits = _score_bits(rules), _tie_bits(rules, tie_resolution_ms), _number_bits(rules)
    scores = f"scores from {rules.score_min} to {rules.score_max} take {score_bits} bits"
    room = f"{scores}, {_tie_reason(rules.ties)} {tie_bits}"
    if form.is_packed:
        why = f"together at most the {bits} of a number"
    elif score_bits + tie_bits > bits:
        why = f"together more than the {bits} of a number"
    else:
        why = f"they would fit the {bits} of a number, but bounds so far from 0 have no exact origin"
    lines = [
        f"{form.kind}: {room}; {why}.",
        f"About {entry_bytes(form)} bytes of Redis' memory for each player in each window and scope.",
    ]
    if exact_top is not None:
        below = TAIL_ENTRY_BYTES if form.is_packed else TAIL_ENTRY_BYTES + PREFIX_BYTES
        lines.append(
            f"Below the first {exact_top}, about {below} bytes, in the top as much more; places are estimates."
        )
    if not form.is_packed:
        lines.append(f"Packed would take about {PACKED_ENTRY_BYTES} bytes: {_packing_advice(rules, tie_resolution_ms)}")
    return lines


def _packing_advice(rules: Rules, tie_resolution_ms: int) -> str:
    left = _number_bits(rules) - _tie_bits(rules, tie_resolution_ms)
    is_far = _score_bits(rules) <= left
    changes = ["bounds nearer to 0" if is_far else f"bounds at most {2**left - 1} apart"]
    if rules.ties in (Ties.EARLIEST, Ties.LATEST):
        for coarser_ms, name in ((60_000, "1m"), (3_600_000, "1h")):
            if tie_resolution_ms < coarser_ms and _score_bits(rules) + _time_bits(coarser_ms) <= NUMBER_BITS:
                changes.append(f"tie_resolution = {name}")
                break
    if rules.ties is not Ties.PLAYER and _score_bits(rules) <= NUMBER_BITS + 1:
        changes.append("ties = player")
    return " or ".join(changes) + "."


def _whole_double_below(number: int) -> int:
    """Return the greatest integer up to this one that a double holds exactly: the Lua functions use it as origin."""
    near = float(number)
    return int(near if near <= number else nextafter(near, -inf))


def _tie_reason(ties: Ties) -> str:
    return {
        Ties.EARLIEST: "the time of a score",
        Ties.LATEST: "the time of a score",
        Ties.VALUE: "a sent tiebreak",
        Ties.PLAYER: "ties by player",
    }[ties]


def _number_bits(rules: Rules) -> int:
    """Return the usable bits of a number; without a tie field, its sign is one more."""
    return NUMBER_BITS + 1 if rules.ties is Ties.PLAYER else NUMBER_BITS


def _score_bits(rules: Rules) -> int:
    return (rules.score_max - rules.score_min).bit_length()


def _tie_bits(rules: Rules, tie_resolution_ms: int) -> int:
    match rules.ties:
        case Ties.PLAYER:
            return 0
        case Ties.VALUE:
            return TIEBREAK_MAX.bit_length()
        case Ties.EARLIEST | Ties.LATEST:
            return _time_bits(tie_resolution_ms)


def _time_bits(tie_resolution_ms: int) -> int:
    return (TIME_MS_MAX // tie_resolution_ms).bit_length()


def _big_endian(words: array[int]) -> bytes:
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()

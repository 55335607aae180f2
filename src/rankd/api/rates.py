"""How often one credential, one player and one address may ask, by token buckets.

    take → the limits that hold for this caller → all of them grant it, or none is charged and RateExceeded is raised

A bucket holds what its limit allows in its period, a second or a minute, and fills evenly. All that is kept of one is
when it will be full again (GCRA), and only while it is not. Each limit has a table of its own, so that a flood from
many addresses cannot push players out of theirs. A request that costs more than a bucket holds, a player's batch, is
granted when the bucket is full and leaves it in debt: the rate holds, and nobody waits for a grant that can never come.

Only the event loop's thread may call this.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from math import ceil

from rankd.api.addresses import limited_as
from rankd.api.request import Header
from rankd.config.model import Limits
from rankd.errors import RankdError, RateExceeded

PERIODS_S = {"second": 1.0, "minute": 60.0}
ROUNDING_S = 1e-6  # sums of floats are off by less
SAID_MAX = 1_000  # headers kept for each limit
SHARED_EVERY_S = 0.1
LOOKED_AT_MAX = 8  # buckets, when room is made for another


class _Limit:
    """One limit of the configuration, and when each caller's bucket is full again; the least recent is the first."""

    __slots__ = (
        "_count",
        "_full_at",
        "_interval_s",
        "_period",
        "_period_s",
        "_said",
        "_tracked_max",
        "_who",
        "refusals",
        "setting",
        "spent_s",
    )

    def __init__(self, setting: str, who: str, count: int, period: str, tracked_max: int) -> None:
        self.setting = setting
        self.refusals = 0
        self._who = who
        self._count = count  # of requests in a period, which is how many a bucket holds
        self._period = period
        self._period_s = PERIODS_S[period]
        self._said: dict[int, tuple[Header, ...]] = {}  # by how many remain, of the most frequent
        self._interval_s = self._period_s / count
        self._tracked_max = tracked_max
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()
        self.spent_s: dict[Hashable, float] | None = None  # since it was shared last, where it is

    @property
    def tracked(self) -> int:
        """How many buckets are remembered."""
        return len(self._full_at)

    def full_after(self, caller: Hashable, now: float, cost: int) -> float:
        """Return when the bucket will be full again if this is granted; raise if it is not."""
        full_now = self._full_at.get(caller, now)
        full_now = full_now if full_now > now else now
        full = full_now + cost * self._interval_s
        too_early_s = full - now - self._period_s
        owed_s = full_now - now
        if too_early_s > ROUNDING_S and owed_s > ROUNDING_S:
            self.refusals += 1
            retry_after_s = max(1, ceil(min(too_early_s, owed_s) - ROUNDING_S))
            raise RateExceeded(
                f"too many requests by one {self._who}: {self._count} a {self._period} are taken; "
                f"send it again in {retry_after_s} s, with the same key if it has one",
                self._count,
                retry_after_s,
            )
        return full

    def grant(self, caller: Hashable, full: float, now: float, cost: int) -> None:
        """Charge it."""
        known = self._full_at
        if self.spent_s is not None:
            self.spent_s[caller] = self.spent_s.get(caller, 0.0) + cost * self._interval_s
        if caller in known:
            known[caller] = full
            known.move_to_end(caller)
        else:
            self._make_room(now)
            known[caller] = full

    def owe(self, caller: Hashable, full: float, now: float) -> None:
        """Take into account what a caller spent elsewhere: the bucket is full again no earlier than this."""
        if full > self._full_at.get(caller, now):
            if caller not in self._full_at:
                self._make_room(now)
            self._full_at[caller] = full

    def headers(self, owed_s: float) -> tuple[Header, ...]:
        """Return what a granted request is told of its limit."""
        if owed_s > self._period_s + ROUNDING_S:
            return limit_headers(self._count, 0, ceil(owed_s - ROUNDING_S))
        remaining = int(self.remaining(owed_s - ROUNDING_S))
        said = self._said.get(remaining)
        if said is None:
            said = limit_headers(self._count, remaining, ceil(self._period_s))
            if remaining < SAID_MAX:
                self._said[remaining] = said
        return said

    def remaining(self, owed_s: float) -> float:
        """Return how many requests a bucket still holds, less than none where it is in debt."""
        return (self._period_s - owed_s) / self._interval_s

    def _make_room(self, now: float) -> None:
        """Forget buckets that are full again; when there is no room and none is found, the least recent one."""
        known = self._full_at
        for _ in range(min(LOOKED_AT_MAX, len(known))):
            first = next(iter(known))
            if known[first] <= now:
                del known[first]
            elif len(known) < self._tracked_max:
                return
            else:
                known.move_to_end(first)  # whoever owes is remembered longer
        if len(known) >= self._tracked_max:
            known.popitem(last=False)


# (limit, caller, ms of its bucket spent) → ms until each is full again; nothing when nobody can be asked
Exchange = Callable[[list[tuple[str, str, float]]], Awaitable[Sequence[int]]]
_ByWhom = tuple[_Limit | None, _Limit | None, _Limit | None]


class Rates:
    """All limits on how often one caller may ask."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` counts seconds; when it goes back, the time until it moves on again does not count."""
        self._clock = clock
        self._shift_s = -clock()  # small numbers are more exact
        self._now = 0.0
        self._limits: list[_Limit] = []
        self._reads = self._by_whom(limits, "reads")
        self._writes = self._by_whom(limits, "writes")
        self._lists = self._limit(limits, "player_lists_per_minute", "player", "minute")

    def _by_whom(self, limits: Limits, kinds: str) -> _ByWhom | None:
        service, player, address = (
            self._limit(limits, f"{who}_{kinds}_per_s", named, "second")
            for who, named in (("service", "credential"), ("player", "player"), ("address", "address"))
        )
        return (service, player, address) if service or player or address else None

    def _limit(self, limits: Limits, setting: str, who: str, period: str) -> _Limit | None:
        count = getattr(limits, setting)
        if not count:
            return None
        made = _Limit(setting, who, count, period, limits.rates_tracked_max)
        self._limits.append(made)
        return made

    def take(
        self,
        is_write: bool,
        account: str | None,
        is_service: bool,
        player: str | None,
        address: str,
        *,
        cost: int = 1,
    ) -> tuple[Header, ...] | None:
        """Count a request and return what the answer says about its caller's limit, None when there is none.

        A service is counted by its `account`, whatever its address and `cost`: its own batches are one request.
        Anybody else is counted by player and by address; `cost` is how many scores their batch has, one if it
        has none. An empty address is that of a socket without one.
        """
        limits = self._writes if is_write else self._reads
        if limits is None:
            return None
        by_service, by_player, by_address = limits
        if is_service:
            return None if by_service is None else self._take_one(by_service, account, 1)
        cost = max(cost, 1)
        own = None if player is None else by_player
        if by_address is None or not address:
            return None if own is None else self._take_one(own, player, cost)
        if own is None:
            return self._take_one(by_address, limited_as(address), cost)
        return self._take_both(own, player, by_address, limited_as(address), cost)

    def take_list(self, player: str) -> None:
        """Count a list of friends that a player stores by a token of their own."""
        if self._lists is not None:
            self._take_one(self._lists, player, 1)

    def _take_one(self, limit: _Limit, caller: Hashable, cost: int) -> tuple[Header, ...]:
        now = self._tell()
        full = limit.full_after(caller, now, cost)
        limit.grant(caller, full, now, cost)
        return limit.headers(full - now)

    def _take_both(
        self, first: _Limit, caller: Hashable, second: _Limit, other: Hashable, cost: int
    ) -> tuple[Header, ...]:
        now = self._tell()
        full = first.full_after(caller, now, cost)
        full_too = second.full_after(other, now, cost)
        first.grant(caller, full, now, cost)
        second.grant(other, full_too, now, cost)
        if first.remaining(full - now) <= second.remaining(full_too - now):
            return first.headers(full - now)
        return second.headers(full_too - now)

    async def share(self, exchange: Exchange, every_s: float = SHARED_EVERY_S) -> None:
        """Hold the limits over several processes: tell what was spent here and hear what was spent anywhere.

        A bucket that is spent here and elsewhere between two times may be overdrawn, and fills all the later.
        """
        for limit in self._limits:
            limit.spent_s = {}
        while self._limits:
            await asyncio.sleep(every_s)
            spent = [
                (limit, caller, seconds) for limit in self._limits for caller, seconds in (limit.spent_s or {}).items()
            ]
            for limit in self._limits:
                limit.spent_s = {}
            if spent:
                told = [(limit.setting, str(caller), seconds * 1_000) for limit, caller, seconds in spent]
                try:
                    owed = await exchange(told)
                except RankdError:
                    continue  # each holds its own limits meanwhile
                now = self._tell()
                for (limit, caller, _), owed_ms in zip(spent, owed, strict=False):
                    limit.owe(caller, now + owed_ms / 1_000, now)

    def _tell(self) -> float:
        now = self._clock() + self._shift_s
        if now < self._now:
            self._shift_s += self._now - now
            return self._now
        self._now = now
        return now

    @property
    def refusals(self) -> dict[str, int]:
        """How often each limit that is set refused, by the setting's name."""
        return {limit.setting: limit.refusals for limit in self._limits}

    @property
    def tracked(self) -> int:
        """How many buckets are remembered."""
        return sum(limit.tracked for limit in self._limits)


def limit_headers(limit: int, remaining: int, reset_s: int) -> tuple[Header, ...]:
    """Return what an answer says about a limit: a 429 that nothing remains, and when to come back."""
    return (
        (b"ratelimit-limit", b"%d" % limit),
        (b"ratelimit-remaining", b"%d" % remaining),
        (b"ratelimit-reset", b"%d" % reset_s),
    )


def refused_headers(error: RateExceeded) -> tuple[Header, ...]:
    """Return what a 429 says about the limit, beside Retry-After."""
    return limit_headers(error.limit, 0, error.retry_after_s)

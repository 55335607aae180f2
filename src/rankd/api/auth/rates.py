"""Rate limits for each credential, player and address, by token buckets.

    take → the limits of this caller → all of them grant it, or none is charged and RateExceeded is raised

A bucket holds what its limit allows in its period, a second or a minute, and fills evenly. It is stored as the time
when it will be full again (GCRA), and only until then. Each limit has a table of its own, so that a flood from many
addresses cannot evict players. A request that costs more than a bucket holds, a player's batch, is granted when the
bucket is full and leaves it in debt: the rate is kept, and no caller waits for a grant that can never come.

Only the event loop's thread may call this.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from math import ceil

from rankd.api.http.addresses import limited_as
from rankd.api.http.request import Header
from rankd.config.model import LimitsConfig
from rankd.errors import RankdError, RateExceeded

PERIODS_S = {"second": 1.0, "minute": 60.0}
ROUNDING_S = 1e-6  # sums of floats are off by less
CACHED_HEADERS_MAX = 1_000  # for each limit
SHARED_EVERY_S = 0.1
EXAMINED_MAX = 8  # buckets, to evict one for another


class _Limit:
    """One limit of the configuration, and when each caller's bucket is full again; the least recent is first."""

    __slots__ = (
        "_cached_headers",
        "_caller_kind",
        "_count",
        "_full_at",
        "_interval_s",
        "_period",
        "_period_s",
        "_tracked_max",
        "refusals",
        "setting",
        "spent_s",
    )

    def __init__(self, setting: str, caller_kind: str, count: int, period: str, tracked_max: int) -> None:
        self.setting = setting
        self.refusals = 0
        self._caller_kind = caller_kind
        self._count = count  # of requests in a period, and in a full bucket
        self._period = period
        self._period_s = PERIODS_S[period]
        self._cached_headers: dict[int, tuple[Header, ...]] = {}  # by how many requests remain
        self._interval_s = self._period_s / count
        self._tracked_max = tracked_max
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()
        self.spent_s: dict[Hashable, float] | None = None  # since it was last shared; None where it is not

    def full_after(self, caller: Hashable, now: float, cost: int) -> float:
        """Return when the bucket will be full again if this is granted; raise RateExceeded if it is not."""
        full_now = self._full_at.get(caller, now)
        full_now = full_now if full_now > now else now
        full = full_now + cost * self._interval_s
        too_early_s = full - now - self._period_s
        owed_s = full_now - now
        if too_early_s > ROUNDING_S and owed_s > ROUNDING_S:
            self.refusals += 1
            retry_after_s = max(1, ceil(min(too_early_s, owed_s) - ROUNDING_S))
            raise RateExceeded(
                f"too many requests by one {self._caller_kind}: {self._count} a {self._period} are allowed; "
                f"send it again in {retry_after_s} s, with the same key if it has one",
                self._count,
                retry_after_s,
            )
        return full

    def grant(self, caller: Hashable, full: float, now: float, cost: int) -> None:
        """Charge the bucket."""
        buckets = self._full_at
        if self.spent_s is not None:
            self.spent_s[caller] = self.spent_s.get(caller, 0.0) + cost * self._interval_s
        if caller in buckets:
            buckets[caller] = full
            buckets.move_to_end(caller)
        else:
            self._evict(now)
            buckets[caller] = full

    def owe(self, caller: Hashable, full: float, now: float) -> None:
        """Add what a caller spent in other processes: the bucket is full again no earlier than `full`."""
        if full > self._full_at.get(caller, now):
            if caller not in self._full_at:
                self._evict(now)
            self._full_at[caller] = full

    def headers(self, owed_s: float) -> tuple[Header, ...]:
        """Return the rate limit headers of a granted request."""
        if owed_s > self._period_s + ROUNDING_S:
            return limit_headers(self._count, 0, ceil(owed_s - ROUNDING_S))
        remaining = int(self.remaining(owed_s - ROUNDING_S))
        headers = self._cached_headers.get(remaining)
        if headers is None:
            headers = limit_headers(self._count, remaining, ceil(self._period_s))
            if remaining < CACHED_HEADERS_MAX:
                self._cached_headers[remaining] = headers
        return headers

    def remaining(self, owed_s: float) -> float:
        """Return how many requests remain in a bucket, below 0 where it is in debt."""
        return (self._period_s - owed_s) / self._interval_s

    def _evict(self, now: float) -> None:
        """Drop buckets that are full again; at the limit, if none of those examined is, the least recent one."""
        buckets = self._full_at
        for _ in range(min(EXAMINED_MAX, len(buckets))):
            first = next(iter(buckets))
            if buckets[first] <= now:
                del buckets[first]
            elif len(buckets) < self._tracked_max:
                return
            else:
                buckets.move_to_end(first)  # callers in debt are kept longer
        if len(buckets) >= self._tracked_max:
            buckets.popitem(last=False)


# (limit, caller, ms of its bucket spent) → ms until each is full again; nothing when Redis is unavailable
ExchangeSpending = Callable[[list[tuple[str, str, float]]], Awaitable[Sequence[int]]]
_CallerLimits = tuple[_Limit | None, _Limit | None, _Limit | None]  # of services, players, addresses


class Rates:
    """All rate limits."""

    def __init__(self, limits: LimitsConfig, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` counts seconds; when it goes back, time stands still until it catches up."""
        self._clock = clock
        self._shift_s = -clock()  # small numbers are more exact
        self._now = 0.0
        self._limits: list[_Limit] = []
        self._reads = self._caller_limits(limits, "reads")
        self._writes = self._caller_limits(limits, "writes")
        self._lists = self._limit(limits, "player_lists_per_minute", "player", "minute")

    def _caller_limits(self, limits: LimitsConfig, kinds: str) -> _CallerLimits | None:
        service, player, address = (
            self._limit(limits, f"{name}_{kinds}_per_s", caller_kind, "second")
            for name, caller_kind in (("service", "credential"), ("player", "player"), ("address", "address"))
        )
        return (service, player, address) if service or player or address else None

    def _limit(self, limits: LimitsConfig, setting: str, caller_kind: str, period: str) -> _Limit | None:
        count = getattr(limits, setting)
        if not count:
            return None
        limit = _Limit(setting, caller_kind, count, period, limits.rates_tracked_max)
        self._limits.append(limit)
        return limit

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
        """Count a request and return the rate limit headers of its answer, None without a limit.

        A service counts by its `account`, whatever its address and `cost`: its batches are one request. Other callers
        count by player and by address; `cost` is the number of scores in their batch. An empty address is that of a
        socket without one.
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
        """Count a list of friends that a player stores by their own token."""
        if self._lists is not None:
            self._take_one(self._lists, player, 1)

    def _take_one(self, limit: _Limit, caller: Hashable, cost: int) -> tuple[Header, ...]:
        now = self._advance()
        full = limit.full_after(caller, now, cost)
        limit.grant(caller, full, now, cost)
        return limit.headers(full - now)

    def _take_both(
        self, first: _Limit, caller: Hashable, second: _Limit, other: Hashable, cost: int
    ) -> tuple[Header, ...]:
        now = self._advance()
        full = first.full_after(caller, now, cost)
        full_too = second.full_after(other, now, cost)
        first.grant(caller, full, now, cost)
        second.grant(other, full_too, now, cost)
        if first.remaining(full - now) <= second.remaining(full_too - now):
            return first.headers(full - now)
        return second.headers(full_too - now)

    async def share(self, exchange: ExchangeSpending, every_s: float = SHARED_EVERY_S) -> None:
        """Apply the limits across several processes: exchange what each has spent.

        A bucket that several processes spend between two exchanges may be overdrawn, and fills later.
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
                report = [(limit.setting, str(caller), seconds * 1_000) for limit, caller, seconds in spent]
                try:
                    owed = await exchange(report)
                except RankdError:
                    continue  # each process applies its own limits meanwhile
                now = self._advance()
                for (limit, caller, _), owed_ms in zip(spent, owed, strict=False):
                    limit.owe(caller, now + owed_ms / 1_000, now)

    def _advance(self) -> float:
        now = self._clock() + self._shift_s
        if now < self._now:
            self._shift_s += self._now - now
            return self._now
        self._now = now
        return now

    @property
    def refusals(self) -> dict[str, int]:
        """How many requests each limit refused, by the setting's name."""
        return {limit.setting: limit.refusals for limit in self._limits}


def limit_headers(limit: int, remaining: int, reset_s: int) -> tuple[Header, ...]:
    """Return the headers about a limit."""
    return (
        (b"ratelimit-limit", b"%d" % limit),
        (b"ratelimit-remaining", b"%d" % remaining),
        (b"ratelimit-reset", b"%d" % reset_s),
    )


def refused_headers(error: RateExceeded) -> tuple[Header, ...]:
    """Return the rate limit headers of a 429."""
    return limit_headers(error.limit, 0, error.retry_after_s)

"""Sliding windows again, in plain Python: no Spark, no increments of windows, only the definition."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

Window = tuple[Any, int]  # key and start


def windows(events: Iterable[tuple[Any, int, Any]], d: int, u: int) -> dict[Window, list[Any]]:
    """Which windows there are, and the values in them, of events (key, time, value); times are whole units."""
    by_key: dict[Any, list[tuple[int, Any]]] = defaultdict(list)
    for key, t, value in events:
        by_key[key].append((t, value))
    found = {}
    for key, theirs in by_key.items():
        times = {t for t, _ in theirs}
        starts = {0 if 0 <= t < d else t - d for t in times}
        starts |= {t + u for t in times if any(t + u <= other <= t + u + d for other in times)}
        for start in starts:
            found[key, start] = sorted((v for t, v in theirs if start <= t <= start + d), key=repr)
    return found


class KafkaModel:
    """`lateness: session`, run by run: open windows hold all remembered events, closed ones stay as they are."""

    def __init__(self, d: int, u: int, grace: int) -> None:
        self.d, self.u, self.grace = d, u, grace
        self.table: dict[Window, list[Any]] = {}
        self.remembered: list[tuple[Any, int, Any]] = []
        self.late: list[tuple[Any, int, Any]] = []
        self.watermark: int | None = None

    def run(self, events: list[tuple[Any, int, Any]]) -> None:
        horizon = None if self.watermark is None else self.watermark - self.grace
        in_time = [e for e in events if horizon is None or e[1] >= horizon]
        old = [e for e in events if e not in in_time]
        known = self.remembered + in_time
        entering = [e for e in old if horizon is not None and self._enters(e, known, horizon)]
        self.late += [e for e in old if e not in entering]
        self.remembered = known + entering
        for window, values in windows(self.remembered, self.d, self.u).items():
            if horizon is None or window[1] + self.d >= horizon:
                self.table[window] = values
        self.watermark = max([t for _, t, _ in events] + ([] if self.watermark is None else [self.watermark]))

    def _enters(self, event: tuple[Any, int, Any], known: list[tuple[Any, int, Any]], horizon: int) -> bool:
        """Whether an open window around it is there once it has come: its left one, or one of a remembered event."""
        key, t, _ = event
        d, u = self.d, self.u
        starts = {0 if 0 <= t < d else t - d}
        for other in (time for k, time, _ in known if k == key):
            starts |= {0 if 0 <= other < d else other - d, other + u}
        return any(s <= t <= s + d and s + d >= horizon for s in starts)

    def final(self) -> set[Window]:
        if self.watermark is None:
            return set()
        return {w for w in self.table if w[1] + self.d < self.watermark - self.grace}

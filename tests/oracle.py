"""The rules again, in plain Python, for comparison: no Spark, no folding, no increments."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def us(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def session_id(key: tuple[str | int | None, ...], start: int, salt: str = "") -> str:
    def tagged(k: str | int | None) -> str:
        if k is None:
            return "n"
        return f"{'i' if isinstance(k, int) else 's'}{len(str(k).encode())}:{k}"

    return hashlib.sha256(("".join(map(tagged, key)) + f"@{start}{salt}").encode()).hexdigest()[:32]


@dataclass
class Oracle:
    """Events: dicts with the key columns, `t` (µs), `o` (tie-breaker), `x` (a value, may be None), `g` (own gap)."""

    key: list[str]
    gap: int | None  # None: each event's own, at least `at_least`
    at_least: int = 0
    splits: bool = False
    longest: int | None = None
    lateness: int = 0
    by_group: bool = False  # lateness: session, with revive
    amends: bool = False
    scope: tuple[str, ...] = ()
    earliest: bool = False  # the watermark follows the earliest event of a run
    delay: int = 0
    accepted: list[Row] = field(default_factory=list)
    rejected: list[tuple[Row, str]] = field(default_factory=list)
    watermarks: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def run(self, events: list[Row]) -> None:
        valid = [e for e in events if self.gap is not None or (e["g"] or 0) > 0]
        self.rejected += [(e, "non_positive_gap") for e in events if e not in valid]
        late = [] if self.amends else [e for e in valid if self._is_late(e, valid)]
        self.rejected += [(e, "late") for e in late]
        self.accepted += [e for e in valid if not any(e is other for other in late)]
        by_scope = defaultdict(list)
        for e in valid:
            by_scope[self._scope(e)].append(e["t"])
        for scope, times in by_scope.items():
            candidate = (min(times) if self.earliest else max(times)) - self.delay
            self.watermarks[scope] = max(self.watermarks.get(scope, candidate), candidate)

    def rows(self) -> list[Row]:
        found = []
        for who, theirs in self._by_key(self.accepted).items():
            theirs.sort(key=lambda e: (e["t"], e["o"], e["x"] is not None, e["x"] or 0))
            sessions: list[list[Row]] = []
            for e in theirs:
                current = sessions[-1] if sessions else []
                if not current or self._beyond(e, current) or self._too_long(e, current):
                    sessions.append([e])
                else:
                    current.append(e)
            found += [self._row(who, session) for session in sessions]
        return sorted(found, key=lambda r: r["session_id"])

    def _is_late(self, event: Row, arriving: list[Row]) -> bool:
        horizon = self._horizon(event)
        if horizon is None or not self.by_group:
            return horizon is not None and event["t"] < horizon
        mine = [e for e in self.accepted + arriving if self._who(e) == self._who(event)]
        group: list[Row] = []
        for e in sorted(mine, key=lambda e: e["t"]):
            if group and self._beyond(e, group):
                if any(other is event for other in group):
                    break
                group = []
            group.append(e)
        return max(map(self._reach, group)) < horizon

    def _beyond(self, e: Row, session: list[Row]) -> bool:
        reach = max(map(self._reach, session))
        return bool(e["t"] >= reach if self.splits else e["t"] > reach)

    def _too_long(self, e: Row, session: list[Row]) -> bool:
        return self.longest is not None and e["t"] - session[0]["t"] > self.longest

    def _reach(self, e: Row) -> int:
        return int(e["t"] + (self.gap if self.gap is not None else max(e["g"], self.at_least)))

    def _who(self, e: Row) -> tuple[Any, ...]:
        return tuple(e[k] for k in self.key)

    def _scope(self, e: Row) -> tuple[Any, ...]:
        return tuple(e[k] for k in self.scope)

    def _horizon(self, e: Row) -> int | None:
        watermark = self.watermarks.get(self._scope(e))
        return None if watermark is None else watermark - self.lateness

    def _by_key(self, events: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
        by_key = defaultdict(list)
        for event in events:
            by_key[self._who(event)].append(event)
        return by_key

    def _row(self, who: tuple[Any, ...], session: list[Row]) -> Row:
        start, end, values = session[0]["t"], session[-1]["t"], [e["x"] for e in session if e["x"] is not None]
        reach, watermark = max(map(self._reach, session)), self.watermarks[self._scope(session[0])]
        final, by_gap = reach < watermark - self.lateness, watermark > reach
        closed = by_gap or (self.longest is not None and watermark > start + self.longest)
        cut = self.longest is not None and start + self.longest < reach
        return dict(zip(self.key, who, strict=True)) | {
            "session_id": session_id(who, start),
            "session_start": at(start),
            "session_end": at(end),
            "expires_at": at(reach),
            "duration_seconds": (end - start) / 1e6,
            "event_count": len(session),
            "total": sum(values) if values else None,
            "least": min(values, default=None),
            "most": max(values, default=None),
            "mean": sum(values) / len(values) if values else None,
            "filled": len(values),
            "entry": session[0]["x"],
            "exit": session[-1]["x"],
            "kinds": len(set(values)),
            "which": sorted(set(values)),
            "status": "final" if final else "closed" if closed else "open",
            "end_reason": ("max_duration" if cut else "gap") if final or closed else None,
            "is_final": final,
            "is_late": False,
            "session_date": date.fromordinal(date(1970, 1, 1).toordinal() + start // 86_400_000_000),
        }


def sessions(events: list[Row], key: list[str], gap: int, splits: bool, lateness: int) -> list[Row]:
    """All events at once, with a fixed gap."""
    oracle = Oracle(key, gap, splits=splits, lateness=lateness)
    oracle.run(events)
    return oracle.rows()

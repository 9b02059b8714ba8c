"""The rules again, in plain Python, for comparison: no Spark, no folding, no increments."""

import hashlib
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def us(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def session_id(key: tuple[str | int | None, ...], start: int) -> str:
    def tagged(k: str | int | None) -> str:
        if k is None:
            return "n"
        return f"{'i' if isinstance(k, int) else 's'}{len(str(k).encode())}:{k}"

    return hashlib.sha256(("".join(map(tagged, key)) + f"@{start}").encode()).hexdigest()[:32]


def sessions(events: list[Row], key: list[str], gap: int, splits: bool, lateness: int) -> list[Row]:
    """Events: dicts with the key columns, `t` (µs), `o` (tie-breaker) and `x` (a value, may be None)."""
    by_key = defaultdict(list)
    for event in events:
        by_key[tuple(event[k] for k in key)].append(event)
    watermark = max((e["t"] for e in events), default=0)
    found = []
    for who, theirs in by_key.items():
        theirs.sort(key=lambda e: (e["t"], e["o"], e["x"] is not None, e["x"] or 0))
        runs: list[list[Row]] = []
        for e in theirs:
            far = not runs or (e["t"] - runs[-1][-1]["t"] >= gap + (0 if splits else 1))
            runs.append([e]) if far else runs[-1].append(e)
        found += [_row(dict(zip(key, who, strict=True)), who, run, gap, watermark, lateness) for run in runs]
    return found


def _row(named: Row, who: tuple[Any, ...], run: list[Row], gap: int, watermark: int, lateness: int) -> Row:
    start, end, values = run[0]["t"], run[-1]["t"], [e["x"] for e in run if e["x"] is not None]
    final, closed = end + gap < watermark - lateness, watermark > end + gap
    return named | {
        "session_id": session_id(who, start),
        "session_start": at(start),
        "session_end": at(end),
        "expires_at": at(end + gap),
        "duration_seconds": (end - start) / 1e6,
        "event_count": len(run),
        "total": sum(values) if values else None,
        "least": min(values, default=None),
        "most": max(values, default=None),
        "mean": sum(values) / len(values) if values else None,
        "filled": len(values),
        "entry": run[0]["x"],
        "exit": run[-1]["x"],
        "kinds": len(set(values)),
        "which": sorted(set(values)),
        "status": "final" if final else "closed" if closed else "open",
        "end_reason": "gap" if final or closed else None,
        "is_final": final,
        "is_late": False,
        "session_date": date.fromordinal(date(1970, 1, 1).toordinal() + start // 86_400_000_000),
    }

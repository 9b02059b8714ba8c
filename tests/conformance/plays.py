"""Plays: what an adapter makes of a case, and what the engine makes of many plays in one Spark job.

Each play has a tenant of its own, which is part of the key and has a watermark of its own. Run i of all plays
with the same rules is one `sessionize`. The clock of each tenant is set by hand before each run, since systems
differ in what moves it: `watermark` says which sessions are closed, `horizon` what is late and what is final.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession

from sessionizer.lib import columns as C
from sessionizer.lib.config import Aggregate, DynamicGap
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from tests.frames import Past, sessionize

FOREVER = 2**60  # microseconds
TENANT, KEY, AT, GAP, RECORD, FIELDS = "tenant", "key", "at", "gap", "record", "fields"
EVENTS = f"{TENANT} STRING, {KEY} STRING, {AT} BIGINT, {GAP} STRING, {RECORD} INT, {FIELDS} STRING"
SCOPES = f"{TENANT} STRING, {C.SCOPE_WATERMARK} BIGINT, {C.SCOPE_FLUSH_MARK} BIGINT, {C.SCOPE_FLUSHED_FROM} BIGINT"
MEMBERS = Aggregate(name="members", fn="list", of=RECORD)


class Rules(NamedTuple):
    """What plays must have in common to share a job."""

    boundary: Literal["joins", "splits"]
    lateness: Literal["event", "session"] = "event"
    revive: bool = False
    null_keys: Literal["reject", "group"] = "group"


@dataclass(frozen=True)
class Event:
    """A record: its number in the case, its key as JSON, its time (µs), its gap as an interval, itself."""

    record: int
    key: str | None
    at: int | None
    gap: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)


class Run(NamedTuple):
    """One run: what comes in, and the clock (µs) it meets."""

    events: tuple[Event, ...] = ()
    watermark: int | None = None
    horizon: int | None = None


@dataclass(frozen=True)
class Play:
    """The runs of a case, or of a part of it, and the aggregates it asks for."""

    rules: Rules
    runs: tuple[Run, ...]
    aggregates: tuple[Aggregate, ...] = ()


@dataclass(frozen=True)
class Session:
    """A row of the sessions table; times in microseconds, `members` are the numbers of its records."""

    key: str | None
    start: int
    end: int
    reach: int
    count: int
    status: str
    members: tuple[int, ...]
    values: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        return self.status != "open"


class Ran(NamedTuple):
    """What a run did: rows that went, rows that came (an update is both), rejected records, the table after."""

    removed: tuple[Session, ...]
    written: tuple[Session, ...]
    rejected: tuple[tuple[int, str], ...]
    table: tuple[Session, ...]

    @property
    def grown(self) -> list[Session]:
        """Written rows that hold more events than any row they replace, not just another status."""
        known = {(s.key, s.start, s.end, s.count) for s in self.removed}
        return [s for s in self.written if (s.key, s.start, s.end, s.count) not in known]

    @property
    def emitted(self) -> list[Session]:
        """Written rows of ended sessions that were not there before, or were open, or have grown."""
        before = {(s.key, s.start, s.end, s.count) for s in self.removed if s.ended}
        return [s for s in self.written if s.ended and (s.key, s.start, s.end, s.count) not in before]


def perform(spark: SparkSession, plays: Sequence[Play]) -> list[list[Ran] | Exception]:
    """What each run of each play did, in the order of the plays; an error where the engine raised one."""
    results: list[list[Ran] | Exception] = [[] for _ in plays]
    together = defaultdict(list)
    for number, play in enumerate(plays):
        together[play.rules].append(number)
    for rules, numbers in together.items():
        for number, ran in _staged(spark, rules, [(n, plays[n]) for n in numbers]).items():
            results[number] = ran
    return results


def _staged(spark: SparkSession, rules: Rules, plays: list[tuple[int, Play]]) -> dict[int, list[Ran] | Exception]:
    """The plays together; where the engine raises an error, in halves, until it is known which play is at fault."""
    try:
        return {**_Stage(spark, rules, plays).perform()}
    except Exception as error:
        if len(plays) == 1 or isinstance(error, TypeError | AttributeError | NameError):  # not the fault of a play
            return dict.fromkeys([number for number, _ in plays], error)
    half = len(plays) // 2
    return _staged(spark, rules, plays[:half]) | _staged(spark, rules, plays[half:])


class _Stage:
    """The engine, run after run, for plays with the same rules. The table lies in the driver: it is small."""

    def __init__(self, spark: SparkSession, rules: Rules, plays: list[tuple[int, Play]]) -> None:
        self.spark = spark
        self.plays = {str(number): play for number, play in plays}
        aggregates = {a.name: a for play in self.plays.values() for a in play.aggregates}
        self.rule = Rule(
            key=(TENANT, KEY),
            gap=DynamicGap(expr=GAP),
            event_time=f"timestamp_micros({AT})",
            order_by=(RECORD,),
            null_keys=rules.null_keys,
            gap_boundary=rules.boundary,
            watermark_per=(TENANT,),
            watermark_delay=FOREVER,
            allowed_lateness=FOREVER,
            lateness=rules.lateness,
            revive=rules.revive,
            max_future_skew=FOREVER,
            aggregates=(MEMBERS, *aggregates.values()),
        )
        self.table: dict[str, Row] = {}
        self.seen: list[tuple[Any, ...]] = []
        self.schema: Any = None

    def perform(self) -> dict[int, list[Ran]]:
        done: dict[int, list[Ran]] = {int(tenant): [] for tenant in self.plays}
        for number in range(max(len(play.runs) for play in self.plays.values())):
            acting = {t: play.runs[number] for t, play in self.plays.items() if number < len(play.runs)}
            for tenant, ran in self._run(number, acting).items():
                done[int(tenant)].append(ran)
        return done

    def _run(self, number: int, acting: Mapping[str, Run]) -> dict[str, Ran]:
        rows = [
            (tenant, e.key, e.at, e.gap, e.record, json.dumps(e.fields))
            for tenant, run in acting.items()
            for e in run.events
        ]
        self.seen += rows
        scopes = [(t, r.watermark, r.horizon, None) for t, r in acting.items() if r.watermark is not None]
        clock = WatermarkState(now=FOREVER, scopes=self.spark.createDataFrame(scopes, SCOPES), run_seq=number + 1)
        ours = [row for row in self.table.values() if row[TENANT] in acting]
        live = self._rows([row for row in ours if not row[C.IS_FINAL]])
        final = self._rows([row for row in ours if row[C.IS_FINAL]])
        past = Past(final, self._events_so_far)
        outcome = sessionize(self.spark.createDataFrame(rows, EVENTS), live, self.rule, clock, past=past)
        self.schema = outcome.changes.drop(C.CHANGE).schema
        changes = outcome.changes.collect()
        rejected = outcome.rejected().select(TENANT, C.REASON, C.EVENT).collect() if outcome.events.rejected else []
        return self._took_place(acting, changes, rejected)

    def _rows(self, rows: list[Row]) -> DataFrame | None:
        return self.spark.createDataFrame(rows, self.schema) if rows else None

    def _events_so_far(self, *_: Any, **__: Any) -> DataFrame:
        return self.spark.createDataFrame(self.seen, EVENTS)

    def _took_place(self, acting: Mapping[str, Run], changes: list[Row], rejected: list[Row]) -> dict[str, Ran]:
        removed, written, table = defaultdict(list), defaultdict(list), defaultdict(list)
        for row in changes:
            if before := self.table.pop(row[C.SESSION_ID], None):
                removed[before[TENANT]].append(_session(before))
        for row in changes:
            if row[C.CHANGE] != "delete":
                columns = [name for name in row.__fields__ if name != C.CHANGE]
                self.table[row[C.SESSION_ID]] = Row(*columns)(*[row[name] for name in columns])
                written[row[TENANT]].append(_session(row))
        for row in self.table.values():
            table[row[TENANT]].append(_session(row))
        turned_away = defaultdict(list)
        for row in rejected:
            turned_away[row[TENANT]].append((json.loads(row[C.EVENT])[RECORD], row[C.REASON]))
        kept = (removed, written, turned_away, table)
        return {t: Ran(*(tuple(of_tenant[t]) for of_tenant in kept)) for t in acting}  # type: ignore[arg-type]


def _session(row: Row) -> Session:
    fixed = (*C.BEFORE_AGGREGATES, *C.AFTER_AGGREGATES, C.STATE, C.CHANGE, TENANT, KEY, MEMBERS.name)
    return Session(
        key=row[KEY],
        start=_us(row[C.SESSION_START]),
        end=_us(row[C.SESSION_END]),
        reach=_us(row[C.EXPIRES_AT]),
        count=row[C.EVENT_COUNT],
        status=row[C.STATUS],
        members=tuple(row[MEMBERS.name]),
        values={name: row[name] for name in row.__fields__ if name not in fixed},
    )


def _us(time: datetime) -> int:
    return (time - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # both UTC, as the process is (tests set TZ)

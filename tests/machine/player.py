"""Plays a history through the public jobs over real tables, and compares every table with the oracle's."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.commands.look_back import LookBack, backfill, readmit, rebuild
from jobs.commands.verify import Asked, verify
from lib.time.watermarks import WatermarkOverride
from tables.runs import ledger_row
from tests.machine.books import Counts, Event, Session
from tests.machine.drawing import clock, drawn, sql
from tests.machine.options import TRACES, sections
from tests.machine.oracle import World
from tests.machine.rule import Key, Row, Rule, number
from tests.machine.steps import Add, Backfill, Delete, Overwrite, Readmit, Rebuild, Run, Step, Update
from tests.machine.walk import aggregates
from tests.oracle import at, us
from tests.warehouse import Warehouse

ARROW = dict.fromkeys(Row._fields, pa.int32()) | {
    "k1": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "v": pa.float64(),
}


@dataclass(frozen=True)
class Difference:
    """What a table holds, or lacks."""

    table: str
    what: str
    key: Key | None = None

    def __str__(self) -> str:
        return f"{self.table}: {self.what}"


class Player:
    """The world as it should be, and the tables as they are."""

    def __init__(self, spark: SparkSession, folder: Path, rule: Rule) -> None:
        self.spark, self.rule, self.world = spark, rule, World(rule)
        self.warehouse = Warehouse(spark, folder, **sections(rule, folder))
        self.names: dict[tuple[Key, int], str] = {}  # ids by key and start
        self.holders: dict[Event, str] = {}

    def play(self, step: Step) -> list[Difference]:
        """Nothing is compared after what happens to the source alone."""
        match step:
            case Add() | Update() | Delete() | Overwrite():
                self._change_source(step)
                return []
            case Run():
                counts = self.world.run(step.now, step.flush, step.advance)
                override = WatermarkOverride(advance_to=step.advance, flush=step.flush)
                reports = self.warehouse.run(now=step.now, override=override)
                return [*self.compared(), *self._of_ledger([ledger_row(r.manifest, r.timing) for r in reports], counts)]
            case Backfill():
                keys = None if step.keys is None else {tuple(key) for key in step.keys}
                self.world.backfill(step.now, step.low, step.high, keys)
                asked = None if keys is None else tuple(f'{{"k1": "{key[0]}"}}' for key in step.keys or ())
                look = LookBack(step.low, step.high, asked, now=step.now)
                backfill(self.warehouse.kind, look)
            case Readmit():
                self.world.readmit(step.now, step.low, step.high)
                readmit(self.warehouse.kind, LookBack(step.low, step.high, now=step.now))
            case Rebuild():
                self.world.rebuild(step.now)
                rebuild(self.warehouse.kind, now=step.now)
                self.holders = {}
        return self.compared()

    def verified(self) -> list[Difference]:
        verdict = verify(self.spark, self.warehouse.config, Asked())
        return [] if verdict.clean else [Difference("verify", str(verdict))]

    # The source.

    def _change_source(self, step: Add | Update | Delete | Overwrite) -> None:
        world = self.world
        match step:
            case Add() if step.rows:
                world.add(step.rows)
                first = not (self.warehouse.folder / "events").exists()
                self.warehouse.append_frame(self._frame(step.rows))
                if first:
                    self.warehouse.init()
            case Update() if step.changes:
                world.change(step.changes)
                self._update(step.changes)
            case Delete() if step.numbers:
                world.delete(step.numbers)
                self.warehouse.delta_source().delete(F.col("n").isin(list(step.numbers)))
            case Overwrite():
                world.overwrite(step.changes, step.gone, step.rows)
                frame = self._frame(world.source.elements())
                frame.write.format("delta").mode("overwrite").save(self.warehouse.config.source.table)

    def _frame(self, rows: Iterable[Row]) -> DataFrame:
        """By way of Arrow, which needs no processes."""
        columns = zip(*map(told, rows), strict=True)
        table = pa.table([pa.array(c, ARROW[n]) for n, c in zip(Row._fields, columns, strict=True)], Row._fields)
        return self.spark.createDataFrame(table).coalesce(1)

    def _update(self, changes: dict[int, dict[str, Any]]) -> None:
        columns = sorted({name for change in changes.values() for name in change})
        cases = {}
        for name in columns:
            values = " ".join(f"WHEN {n} THEN {sql(name, c[name])}" for n, c in changes.items() if name in c)
            cases[name] = f"CASE n {values} ELSE {name} END"
        self.warehouse.delta_source().update(F.col("n").isin(list(changes)), {n: F.expr(c) for n, c in cases.items()})

    # The tables.

    def compared(self) -> list[Difference]:
        rows = self._rows(self.warehouse.config.sessions.table)
        sessions = self.world.sessions()
        return [
            *self._of_sessions(rows, sessions),
            *self._of_ids(rows, sessions),
            *self._of_rejected(),
            *(self._of_traces(rows) if self.rule.traced else []),
        ]

    def _rows(self, place: str) -> list[dict[str, Any]]:
        return [
            {n: us(v) if isinstance(v, datetime) else v for n, v in row.items()}
            for row in DeltaTable(place).to_pyarrow_table().to_pylist()
        ]

    def _who(self, row: dict[str, Any]) -> Key:
        return tuple(row[name] for name in self.rule.key)

    def _of_sessions(self, rows: list[dict[str, Any]], sessions: list[Session]) -> Iterable[Difference]:
        wanted: dict[str, list[Session]] = defaultdict(list)
        for s in sessions:
            wanted[self._shown(s)].append(s)
        names = ["session_start", "session_end", "expires_at", "event_count", "is_late", "duration_seconds"]
        for row in rows:
            made = {n: row[n] for n in (*names, *aggregates(self.rule, sessions[0]))} if sessions else {}
            shown = drawn(self._who(row), made)
            state = row["status"], row["end_reason"]
            if not wanted[shown]:
                yield Difference("sessions", f"too much: {shown} {state}", self._who(row))
                continue
            same = wanted[shown]
            fitting = next((s for s in same if state in s.states), None)
            if fitting is None:
                right = [s.states for s in same]
                yield Difference("states", f"{shown} is {state}, and not {right}", self._who(row))
            same.remove(fitting or same[0])
            if row["is_final"] != (row["status"] == "final"):
                yield Difference("states", f"{shown} is {state}, is_final {row['is_final']}", self._who(row))
        for shown, missing in wanted.items():
            yield from (Difference("sessions", f"missing: {shown} {s.states}", s.key) for s in missing)

    def _shown(self, s: Session) -> str:
        made = {
            "session_start": s.start,
            "session_end": s.end,
            "expires_at": s.expires,
            "event_count": len(s.events),
            "is_late": s.late,
            "duration_seconds": (s.end - s.start) / 1e6,
        }
        return drawn(s.key, made | aggregates(self.rule, s))

    def _of_ids(self, rows: list[dict[str, Any]], sessions: list[Session]) -> Iterable[Difference]:
        by_id = Counter(row["session_id"] for row in rows)
        yield from (Difference("ids", f"{name} is the id of {n} rows") for name, n in by_id.items() if n > 1)
        if self.rule.freezes:
            return
        found = {(self._who(row), row["session_start"]): row for row in rows if not row["is_late"]}
        for place, row in found.items():
            if self.names.setdefault(place, row["session_id"]) != row["session_id"]:
                yield Difference("ids", f"the session of {place} has another id than before", place[0])
        holders = {}
        for s in sessions:
            made = None if s.late else found.get((s.key, s.start))
            if made is None:
                continue
            for e in s.events:
                holders[e] = made["session_id"]
                before = self.holders.get(e)
                if before is not None and before not in by_id and before not in (made["supersedes"] or ()):
                    yield Difference("ids", f"the session of {s.key, s.start} does not name {before}", s.key)
        self.holders = holders

    def _of_rejected(self) -> Iterable[Difference]:
        found = Counter(
            (self._who(row), row["event_time"], row["reason"], row["kept"])
            for row in self._rows(self.warehouse.config.outputs.rejected_events)
        )
        wanted = Counter((self.rule.who(r.row), r.row.at, r.reason, r.kept) for r in self.world.rejected)
        for what, rows in (("too much", found - wanted), ("missing", wanted - found)):
            yield from (Difference("rejected_events", f"{what}: {row} x{n}", row[0]) for row, n in rows.items())

    def _of_traces(self, rows: list[dict[str, Any]]) -> Iterable[Difference]:
        """Every event is traced once, to its session, and the last row of a session has what the session has."""
        places = {row["session_id"]: (self._who(row), row["session_start"], row["is_late"]) for row in rows}
        sessions = self.world.sessions()
        wanted: Counter[Any] = Counter((s.key, e.t, (s.key, s.start, s.late)) for s in sessions for e in s.events)
        for table in TRACES:
            traced = self._rows(str(self.warehouse.folder / table))
            found: Counter[Any] = Counter((self._who(r), r["event_time"], places.get(r["session_id"])) for r in traced)
            for what, events in (("too much", found - wanted), ("missing", wanted - found)):
                yield from (Difference(table, f"{what}: {event} x{n}", event[0]) for event, n in events.items())
        by_session = defaultdict(list)
        for row in traced:
            by_session[row["session_id"]].append(row)
        for row in rows:
            updates = sorted(by_session[row["session_id"]], key=lambda r: r["n"])
            names = aggregates(self.rule, sessions[0])
            if [r["n"] for r in updates] != list(range(1, row["event_count"] + 1)):
                yield Difference("session_updates", f"{places[row['session_id']]}: {[r['n'] for r in updates]}")
            elif drawn((), {n: updates[-1][n] for n in names}) != drawn((), {n: row[n] for n in names}):
                yield Difference(
                    "session_updates", f"{places[row['session_id']]} ends with {updates[-1]}", self._who(row)
                )

    def _of_ledger(self, reports: list[dict[str, Any]], counts: list[Counts]) -> Iterable[Difference]:
        names = ("accepted", "late", "invalid", "duplicates")
        # Where sessions are judged, more is told to be amended: see tests/exactness/test_found_by_machine.py.
        counted = (*names, "amended") if self.rule.lateness == "event" else names
        for report in reports:
            if report["events_read"] != sum(report[name] for name in names):
                yield Difference("runs", f"does not add up: {report}")
        if len(reports) != len(counts):
            return
        for report, wanted in zip(reports, counts, strict=True):
            if wanted.plain:
                for name in counted:
                    if report[name] != getattr(wanted, name):
                        yield Difference("runs", f"{name} is {report[name]}, and not {getattr(wanted, name)}")
            if not self.rule.per:
                for name in ("watermark", "horizon"):
                    found, right = report[f"{name}_after"], getattr(wanted, name)
                    if found != right:
                        yield Difference("runs", f"{name} is {clock(found)}, and not {clock(right)}")


def told(row: Row) -> tuple[Any, ...]:
    """As Spark takes it."""
    values = row._asdict() | {"at": None if row.at is None else at(row.at), "v": number(row.v)}
    return tuple(values.values())

"""Any history: whatever happens to the source and to the tables, in any order, the table is what its events make.

One machine, of sessions or of sliding windows, plays long random scenarios over real Delta tables, and keeps book of
what the rules say: which events are accepted, where the watermark stands. After every step the tables equal a plain
recompute of the book, and `verify` agrees.
"""

import copy
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from delta import DeltaTable
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, backfill, readmit, rebuild
from sessionizer.jobs.commands.maintain import Asked as Upkeep
from sessionizer.jobs.commands.maintain import maintain
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.commands.verify_windows import verify_windows
from sessionizer.jobs.reporting.verdict import Verdict
from sessionizer.jobs.run.driver import increments
from sessionizer.jobs.run.kinds import Kind
from sessionizer.jobs.run.phases import RunOptions
from tests.kills import Killed, killing
from tests.oracle import Oracle, at, us
from tests.rounds import rounds
from tests.sliding_oracle import windows
from tests.text_tables import clock
from tests.warehouse import NOW, Warehouse

MINUTE = 60_000_000
STEP = 10 * MINUTE
TOTAL = {"name": "total", "fn": "sum", "of": "n"}
FIRST = us(clock("0:00"))
LATENESS = 12 * STEP
UNIT = 1000
COMPARED = ("user", "session_id", "session_start", "session_end", "expires_at", "event_count", "total", "status")
COMPARED_WINDOWS = ("user", "window_start", "window_end", "last_event_time", "event_count", "total", "is_final")

events_of = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), min_size=1, max_size=6)
spans = st.tuples(st.integers(0, 60), st.integers(1, 30))
kills = st.one_of(st.none(), st.tuples(st.integers(1, 3), st.booleans()))
rules = st.fixed_dictionaries(
    {
        "gap": st.sampled_from([2, 3]),
        "longest": st.sampled_from([None, None, 6]),
        "splits": st.booleans(),
    }
)


@dataclass
class Book:
    """What the rules say of the tables. Events: user and time by number, which is what an event carries."""

    rule: dict[str, Any]
    consumed: dict[int, tuple[str, int]] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)
    watermark: int | None = None
    operations: int = 0  # on the source, when it was consumed

    def rows(self) -> list[tuple[Any, ...]]:
        """The sessions table."""
        longest = self.rule["longest"]
        oracle = Oracle(
            ["user"],
            self.rule["gap"] * STEP,
            splits=self.rule["splits"],
            longest=None if longest is None else longest * STEP,
            lateness=LATENESS,
        )
        oracle.accepted = [
            {"user": user, "t": t, "o": n, "x": n} for n, (user, t) in self.consumed.items() if n not in self.rejected
        ]
        if self.watermark is not None:
            oracle.watermarks[()] = self.watermark
        return sorted((tuple(row[name] for name in COMPARED) for row in oracle.rows()), key=repr)

    def windows(self) -> list[tuple[Any, ...]]:
        """The windows table: those of a gap's length."""
        accepted = [(user, t, (t, n)) for n, (user, t) in self.consumed.items() if n not in self.rejected]
        length, rows = self.rule["gap"] * STEP, []
        for (user, start), values in windows(accepted, length, UNIT).items():
            last, total = max(t for t, _ in values), sum(n for _, n in values)
            is_final = self.watermark is not None and start + length < self.watermark - LATENESS
            rows.append((user, at(start), at(start + length), at(last), len(values), total, is_final))
        return sorted(rows, key=repr)


class AnyHistory(RuleBasedStateMachine):
    """What may happen, in any order."""

    spark: ClassVar[SparkSession]
    columns: ClassVar[tuple[str, ...]] = COMPARED

    @property
    def kind(self) -> Kind:
        return self.warehouse.kind

    def expected(self) -> list[tuple[Any, ...]]:
        return self.book.rows()

    def verdict(self) -> Verdict:
        return verify(self.spark, self.warehouse.config, Asked())

    @initialize(first=events_of, amends=st.booleans(), commit=st.sampled_from(["merge", "replace"]), of_rule=rules)
    def begin(self, first: list[tuple[str, int]], amends: bool, commit: str, of_rule: dict[str, Any]) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="any-history-")
        self.source: dict[int, tuple[str, int]] = {}
        self.updated: dict[int, int] = {}
        self.operations = 0
        self.next_number = 1
        self.amends, self.commit = amends, commit
        self.book = Book(of_rule)
        self.warehouse = Warehouse(self.spark, Path(self.folder.name), **self.sections(of_rule))
        self.append(first)
        self.warehouse.init()
        self.run(None)
        self.known: list[tuple[int, Book]] = [self.here()]

    # What happens to the source.

    @rule(events=events_of, shift=st.integers(0, 40))
    def append(self, events: list[tuple[str, int]], shift: int = 0) -> None:
        rows = []
        for user, step in events:
            place = (user, FIRST + (step + shift) * STEP)
            self.source[self.next_number] = place
            rows.append((user, at(place[1]), self.next_number))
            self.next_number += 1
        self.operations += 1
        self.warehouse.append(rows)

    @precondition(lambda self: self.source)
    @rule(data=st.data(), user=st.sampled_from("ab"), step=st.integers(0, 60))
    def update(self, data: st.DataObject, user: str, step: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.source)))
        place = (user, FIRST + step * STEP)
        self.operations += 1
        self.source[number] = place
        self.updated[number] = self.operations
        moved: dict[str, Any] = {"user": f"'{user}'", "at": f"timestamp_micros({place[1]})"}
        self.warehouse.delta_source().update(f"n = {number}", moved)

    @precondition(lambda self: len(self.source) > 1)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.source)))
        self.operations += 1
        del self.source[number]
        self.warehouse.delta_source().delete(f"n = {number}")

    # What people and schedulers do.

    @rule(kill=kills)
    def run(self, kill: tuple[int, bool] | None) -> None:
        self.done_although_killed(kill, lambda: increments(self.kind, RunOptions(now=NOW)))
        self.enter_increment()
        self.check()

    @rule(span=spans, kill=kills)
    def backfill(self, span: tuple[int, int], kill: tuple[int, bool] | None) -> None:
        low, high = FIRST + span[0] * STEP, FIRST + sum(span) * STEP
        look = LookBack(low, high, chunk=20 * STEP, now=NOW)
        self.done_although_killed(kill, lambda: backfill(self.kind, look))
        self.take_in(low, high)
        self.check()

    @rule(span=spans)
    def readmit(self, span: tuple[int, int]) -> None:
        low, high = FIRST + span[0] * STEP, FIRST + sum(span) * STEP
        readmit(self.kind, LookBack(low, high, now=NOW))
        self.take_in(low, high)
        self.check()

    @rule(of_rule=rules, kill=kills)
    def change_rule_and_rebuild(self, of_rule: dict[str, Any], kill: tuple[int, bool] | None) -> None:
        self.warehouse.config = self.warehouse.configured(**self.sections(of_rule))
        self.done_although_killed(kill, lambda: rebuild(self.kind, now=NOW))
        times = [t for _, t in self.source.values()]
        watermark = max(t for t in (*times, self.book.watermark) if t is not None)
        self.book = Book(of_rule, dict(self.source), set(), watermark, self.operations)
        self.check()

    @rule()
    def maintain(self) -> None:
        self.warehouse.delta_source().optimize().executeCompaction()
        maintain(self.spark, self.warehouse.config, Upkeep(now=NOW))
        self.check()

    @precondition(lambda self: len(self.known) > 1)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        version, book = data.draw(st.sampled_from(self.known[:-1]))
        DeltaTable.forPath(self.spark, self.kind.home.table.location).restoreToVersion(version)
        self.book = copy.deepcopy(book)
        self.warehouse.config = self.warehouse.configured(**self.sections(book.rule))
        self.run(None)

    # Keeping book.

    def sections(self, of_rule: dict[str, Any]) -> dict[str, Any]:
        longest = {} if of_rule["longest"] is None else {"max_duration": f"{of_rule['longest'] * 10}m"}
        boundary = "splits" if of_rule["splits"] else "joins"
        return {
            "session": {"gap": f"{of_rule['gap'] * 10}m", "gap_boundary": boundary, **longest},
            "time": {"allowed_lateness": f"{LATENESS // MINUTE}m"},
            "late_events": "amend" if self.amends else "quarantine",
            "sessions": {"commit": self.commit},
        }

    def enter_increment(self) -> None:
        book = self.book
        gone = {n for n, place in book.consumed.items() if self.source.get(n) != place}
        added = {n for n, place in self.source.items() if book.consumed.get(n) != place}
        removed_places = {book.consumed[n] for n in gone}
        book.rejected -= gone
        if not self.amends and book.watermark is not None:
            horizon = book.watermark - LATENESS
            corrected = {n for n in added if self.updated.get(n, -1) > book.operations}
            corrected |= {n for n in added if self.source[n] in removed_places}
            book.rejected |= {n for n in added - corrected if self.source[n][1] < horizon}
        times = [self.source[n][1] for n in added]
        if book.watermark is not None:
            times.append(book.watermark)
        book.watermark = max(times, default=None)
        book.consumed, book.operations = dict(self.source), self.operations

    def take_in(self, low: int, high: int) -> None:
        """Rejected events of a span become accepted."""
        self.book.rejected = {n for n in self.book.rejected if not low <= self.book.consumed[n][1] < high}

    def here(self) -> tuple[int, Book]:
        return self.kind.home.table.version, copy.deepcopy(self.book)

    def done_although_killed(self, kill: tuple[int, bool] | None, job: Callable[[], Any]) -> None:
        """The job, killed before or after its nth write, if it has so many, and then asked for again."""
        if kill is not None:
            with killing(*kill):
                try:
                    job()
                except Killed:
                    pass
                else:
                    return
        job()

    def check(self) -> None:
        found = self.kind.home.table.read().select(*self.columns).collect()
        times = [tuple(v.astimezone(at(0).tzinfo) if hasattr(v, "astimezone") else v for v in row) for row in found]
        assert sorted(times, key=repr) == self.expected()
        rejected = [json.loads(row[0])["n"] for row in self.kind.rejected_events.table.read().select("event").collect()]
        assert sorted(rejected) == sorted(self.book.rejected)
        verdict = self.verdict()
        assert verdict.clean, verdict
        if hasattr(self, "known"):
            self.known.append(self.here())

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


class AnyHistoryOfWindows(AnyHistory):
    """The same of sliding windows."""

    columns = COMPARED_WINDOWS

    @property
    def kind(self) -> Kind:
        return self.warehouse.windows

    def expected(self) -> list[tuple[Any, ...]]:
        return self.book.windows()

    def verdict(self) -> Verdict:
        return verify_windows(self.spark, self.warehouse.config, Asked())

    def sections(self, of_rule: dict[str, Any]) -> dict[str, Any]:
        section = {"table": str(Path(self.folder.name) / "windows"), "time_difference": f"{of_rule['gap'] * 10}m"}
        section |= {"grace": f"{LATENESS // MINUTE}m", "time_unit": f"{UNIT}us"}
        return super().sections(of_rule) | {"sliding": {**section, "aggregates": [TOTAL]}}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [AnyHistory, AnyHistoryOfWindows])
def test_the_table_is_what_its_events_make_after_any_history(spark: SparkSession, machine: type[AnyHistory]) -> None:
    machine.spark = spark
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=rounds(1),
            stateful_step_count=12,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )

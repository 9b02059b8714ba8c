"""Jobs at the same time: nothing is lost, nothing is doubled, and whoever comes second starts over by itself.

Processes race over one lake, which grows from round to round; who begins when is drawn from a seed (RACE_SEED), and
SESSIONIZER_TEST_TIMES multiplies the rounds. After each round the tables must be what a plain recompute of the consumed
events makes. Threads of one process race without the lock of a local table, as writers do on an object store: there
Delta's own checks alone keep them apart.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.tables.delta import Table
from sessionizer.tables.position import position_of
from sessionizer.tables.queries.local import LocalTable, LocalTableSet
from tests.few_rows import FOR_FEW_ROWS, for_few_rows
from tests.jobs.driver import JOBS
from tests.oracle import at, sessions, us
from tests.processes import Worker
from tests.rounds import rounds
from tests.sliding_oracle import windows
from tests.summary import Tally
from tests.text_tables import clock
from tests.warehouse import Warehouse

SEED = int(os.environ.get("RACE_SEED", "20260101"))
MINUTE = 60_000_000
GAP, UNIT = 30 * MINUTE, 1000
TOTAL = {"name": "total", "fn": "sum", "of": "n"}
DAY_LONG = {"low": us(clock("0:00")), "high": us(clock("+2d 0:00"))}
EVENTS = pa.schema([("user", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int32())])
OVERTAKEN = "another run was faster"
SECTIONS: dict[str, Any] = {"late_events": "amend", "time": {"allowed_lateness": "13h"}}
ROUNDS = {
    ("run", "run"): 2,
    ("run", "backfill"): 2,
    ("run", "maintain"): 1,
    ("run", "restore"): 1,
    ("ingest", "run"): 1,
    ("run", "backfill", "ingest"): 2,
    ("slide", "slide"): 1,
    ("slide", "backfill of windows"): 1,
}
WITHOUT_LOCK = {
    ("run", "run"): 2,
    ("run", "backfill"): 2,
    ("run", "maintain"): 1,
    ("slide", "backfill of windows"): 1,
}


class Race:
    """A lake, events that keep coming to it, and what must be there."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.number = 0
        section = {"table": str(folder / "windows"), "time_difference": "30m", "grace": "13h", "aggregates": [TOTAL]}
        sections = SECTIONS | {"sliding": section}
        self.lake = Warehouse(spark, folder, **sections)
        self.replacing = self.lake.configured(**sections, sessions={"commit": "replace"})
        self.lake.append(self.events())
        self.lake.init().run()
        JOBS["slide"](spark, self.lake.config)

    def events(self) -> list[tuple[Any, ...]]:
        """Some more of the last twelve hours, every fourth time of two days, so that many are late; one has no key."""
        begin = 36 * 60 if self.number % 4 else 0
        self.number += 1
        users = [self.chance.choice("abc") for _ in range(self.chance.randint(1, 5))]
        times = [us(clock("0:00")) + self.chance.randrange(begin, 48 * 60) * MINUTE for _ in (*users, None)]
        return [(user, at(t), self.number) for user, t in zip((*users, None), times, strict=True)]

    def append(self) -> None:
        """Some more, as a version of the source; it is made without Spark, which has enough to do."""
        rows = [{"user": user, "at": time, "n": n} for user, time, n in self.events()]
        write_deltalake(self.lake.config.source.table, pa.Table.from_pylist(rows, EVENTS), mode="append")

    def file(self) -> str:
        """Some more, in a file."""
        rows = [{"user": user, "at": f"{t:%Y-%m-%dT%H:%M:%SZ}", "n": n} for user, t, n in self.events()]
        path = self.lake.folder / f"{self.number}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    def config(self) -> Config:
        """How a job of this round commits: drawn, too."""
        return self.chance.choice((self.lake.config, self.replacing))

    def options(self, job: str) -> dict[str, Any]:
        """What a job of this round is asked."""
        match job:
            case "backfill" | "backfill of windows":
                return DAY_LONG
            case "ingest":
                return {"files": [self.file()], "format": "json"}
            case "restore":
                return {"back": self.chance.randint(1, 2)}
        return {}

    def lost_and_doubled(self) -> tuple[int, int]:
        """Sessions, windows and rejected events, compared with what the events that were consumed make."""
        expected, found = self.expected(), self.found()
        return (expected - found).total(), (found - expected).total()

    def expected(self) -> Counter[tuple[Any, ...]]:
        tables = LocalTableSet(self.lake.config)
        read, of_windows = self.consumed(tables.sessions), self.consumed(tables.of_windows["windows"])
        events = [
            {"user": e["user"], "t": us(e["at"]), "o": e["n"], "x": e["n"]} for e in read if e["user"] is not None
        ]
        rows = [
            (r["user"], r[C.SESSION_START], r[C.SESSION_END], r[C.EVENT_COUNT], r["total"])
            for r in sessions(events, ["user"], GAP, splits=False, lateness=0)
        ]
        accepted = [(e["user"], us(e["at"]), (us(e["at"]), e["n"])) for e in of_windows if e["user"] is not None]
        for (user, start), values in windows(accepted, GAP, UNIT).items():
            rows.append(("window", user, at(start), len(values), sum(n for _, n in values)))
        each = (("rejected", read), ("in no window", of_windows))
        return Counter([*rows, *[(why, e["at"], e["n"]) for why, all in each for e in all if e["user"] is None]])

    def consumed(self, table: LocalTable) -> list[dict[str, Any]]:
        """The events that have been read into it."""
        position = position_of(table).manifest
        assert position is not None
        source = DeltaTable(self.lake.config.source.table, version=position.source_to_version)
        return source.to_pyarrow_table().to_pylist()

    def found(self) -> Counter[tuple[Any, ...]]:
        tables = LocalTableSet(self.lake.config)
        columns = ["user", C.SESSION_START, C.SESSION_END, C.EVENT_COUNT, "total"]
        rows = [tuple(r.values()) for r in tables.sessions.dataset().to_table(columns=columns).to_pylist()]
        columns = ["user", C.WINDOW_START, C.EVENT_COUNT, "total"]
        made = tables.of_windows["windows"].dataset().to_table(columns=columns).to_pylist()
        rows += [("window", *r.values()) for r in made]
        places = {"rejected": tables.rejected_events, "in no window": tables.of_windows["rejected_window_events"]}
        for why, place in places.items():
            rejected = place.dataset().to_table(columns=[C.EVENT_TIME, C.EVENT]).to_pylist()
            rows += [(why, r[C.EVENT_TIME], json.loads(r[C.EVENT])["n"]) for r in rejected]
        return Counter(rows)

    def entered_twice(self) -> int:
        """Rows of the ledgers beyond one a run."""
        tables = LocalTableSet(self.lake.config)
        ledgers = (tables.runs, tables.of_windows["window_runs"])
        each = [t.dataset().to_table(columns=[C.RUN_SEQ])[C.RUN_SEQ].to_pylist() for t in ledgers]
        return sum(len(numbers) - len(set(numbers)) for numbers in each)

    def check(self, tally: Tally, what: str) -> None:
        lost, doubled = self.lost_and_doubled()
        doubled += self.entered_twice()
        for name, number in {"race rounds": 1, "rows lost": lost, "rows doubled": doubled}.items():
            tally.add(name, number)
        assert (lost, doubled) == (0, 0), (what, f"RACE_SEED={SEED}", self.expected(), self.found())


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Worker]]:
    logs = tmp_path_factory.mktemp("workers")
    with ExitStack() as stack:
        yield [stack.enter_context(Worker(logs / f"{n}.log", FOR_FEW_ROWS, lives_long=True)) for n in range(3)]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_processes_at_once_lose_and_double_nothing(
    spark: SparkSession, workers: list[Worker], tmp_path: Path, tally: Tally
) -> None:
    race = Race(spark, tmp_path, SEED)
    for worker in workers:
        worker.wait_ready()
    for jobs, times in ROUNDS.items():
        for number in range(rounds(times)):
            race.append()
            asked = [(job, race.options(job)) for job in race.chance.sample(jobs, len(jobs))]
            for worker, (job, options) in zip(workers, asked, strict=False):
                worker.ask(job, race.config(), **options)
                time.sleep(race.chance.choice((0, 0.1, 0.5, 1.5)))
            for worker in workers[: len(asked)]:
                worker.answer()
            if "restore" in jobs:  # what it has undone leaves the side tables with the next run
                workers[0].do("run", race.lake.config)
            race.check(tally, f"round {number} of {asked}")
    assert workers[0].do("verify", race.lake.config)
    overtaken = sum(worker.log.read_text().count(OVERTAKEN) for worker in workers)
    tally.add("races lost, and started over", overtaken)
    assert overtaken, "no two jobs have ever met"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_without_a_lock_the_checks_of_delta_keep_jobs_apart(
    spark: SparkSession,
    tmp_path: Path,
    tally: Tally,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    race = Race(spark, tmp_path, SEED + 1)
    monkeypatch.setattr(Table, "lock", lambda _: nullcontext())
    with ThreadPoolExecutor(2) as threads:
        for jobs, times in WITHOUT_LOCK.items():
            for number in range(rounds(times)):
                race.append()
                asked = race.chance.sample(jobs, len(jobs))
                at_once(threads, spark, [(job, race.config(), race.options(job)) for job in asked])
                race.check(tally, f"round {number} of {asked}")
    assert JOBS["verify"](spark, race.lake.config)
    overtaken = capfd.readouterr().err.count(OVERTAKEN)
    tally.add("races lost, and started over", overtaken)
    assert overtaken, "no two jobs have ever met"


def at_once(
    threads: ThreadPoolExecutor, spark: SparkSession, asked: Sequence[tuple[str, Config, dict[str, Any]]]
) -> list[Any]:
    """Each job in a thread and a session of its own: fences are settings of a session."""

    def doing(job: str, config: Config, options: dict[str, Any]) -> Callable[[], Any]:
        def do() -> Any:
            session = spark.newSession()
            with for_few_rows(session):
                return JOBS[job](session, config, **options)

        return do

    return [done.result() for done in [threads.submit(doing(*one)) for one in asked]]

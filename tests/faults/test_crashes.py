"""A kill may fall before or after any write of any job: asked for again, the job leaves what it would have left.

A kill leaves what is on the disk. So each job is done once, and before and after each of its writes the folder is
copied; each copy is then a lake in which somebody starts the job again.
"""

import inspect
import random
import shutil
import time
from collections.abc import Generator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.tables.delta import Table
from sessionizer.tables.delta.place import LOCK_FILE
from tests.faults.lakes import SCENARIOS, Contents, Scenario, Stock, contents, last_runs, lost_and_doubled
from tests.few_rows import FOR_FEW_ROWS
from tests.jobs.driver import JOBS
from tests.kills import WRITES, Killed, each_write, killing
from tests.processes import Worker
from tests.rounds import one_in
from tests.summary import Tally

# Of a real process: a scenario, and before (False) or after (True) which of its writes it is killed.
POINTS = (
    ("run", 1, False),
    ("run with corrections", 1, True),
    ("rebuild", 2, False),
    ("ingest", 2, True),
)
MOMENTS = (("run", 4.0),)  # and within so many seconds, wherever it is then
# Upkeep of many tables does the same thing to one after the other: of the moments of its death one in so many is tried.
ONE_IN = {"maintain": 3}
# What writes files first, and then its commit.
UNCOMMITTED = ("append", "append_few", "merge", "overwrite", "create", "compact")


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file but locks, with size and time: two listings are equal where nothing was written."""
    found = ((p, p.stat()) for p in folder.rglob("*") if p.is_file() and not p.name.endswith((LOCK_FILE, ".crc")))
    return {str(p.relative_to(folder)): (seen.st_size, seen.st_mtime_ns) for p, seen in found}


@dataclass
class Deaths:
    """Copies of a folder, as a kill around each write leaves it, by name; they tell which write it was."""

    folder: Path
    into: Path
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    places: dict[str, Path] = field(default_factory=dict)
    writes: int = 0
    unwatched: list[str] = field(default_factory=list)

    def before(self, name: str) -> None:
        """Just before the next write; what lies between two writes leaves no trace, so that one copy is both."""
        here = files(self.folder)
        if not self.writes:
            self._copy("before the first write")
        elif here != self.seen:
            self.unwatched.append(f"before write {self.writes + 1}, {name}: {sorted(here.items() ^ self.seen.items())}")
        self.seen = here

    def after(self, name: str) -> None:
        """Just after it; and where its files are there but its commit is not."""
        self.writes += 1
        old, self.seen = self.seen, files(self.folder)
        if self.seen == old:
            return  # nothing to do: no trace of it
        place = self._copy(f"after write {self.writes}, {name}")
        news = [path for path in self.seen.keys() - old.keys() if "/_delta_log/" in path]
        if (
            (self.writes == 1 or name == "create")
            and name in UNCOMMITTED
            and any(path.endswith(".json") for path in news)
        ):
            torn = self._copy(f"in write {self.writes}, {name}, before its commit", place)
            for path in news:
                (torn / path).unlink()
                (torn / path).with_name(f".{Path(path).name}.crc").unlink(missing_ok=True)
                (torn / path).with_suffix(".crc").unlink(missing_ok=True)

    def _copy(self, name: str, of: Path | None = None) -> Path:
        place = self.into / f"{len(self.places):02d}"
        shutil.copytree(of or self.folder, place)
        self.places[name] = place
        return place


def tried(scenario: Scenario, stock: Stock, folder: Path) -> Deaths:
    """The job done once, with a copy of each place at which it may die; it leaves tables that `verify` finds right."""
    stock.copy(scenario.finds, folder / "undisturbed", *scenario.optional)
    lake = scenario.lake(stock.spark, folder / "undisturbed")
    deaths = Deaths(lake.folder, folder)
    with each_write(deaths.before, deaths.after):
        scenario.do(lake)
    assert deaths.unwatched == [], "what changes tables must be one of tests.kills.WRITES"
    return deaths


def outcome(scenario: Scenario, folder: Path, undisturbed: Path | None = None) -> Contents:
    """What the tables hold; of the ledger as much as without disturbance."""
    up_to = last_runs(undisturbed or folder) if scenario.again else None
    return contents(folder, versions=scenario.versions, up_to=up_to)


def right(scenario: Scenario, spark: SparkSession, folder: Path) -> bool:
    """Whether `verify` says so, where there is something to verify."""
    return scenario.job in ("init", "ingest") or JOBS["verify"](spark, scenario.lake(spark, folder).config)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_job_that_died_anywhere_leaves_the_same_when_it_is_asked_for_again(
    name: str, stock: Stock, tmp_path: Path, tally: Tally
) -> None:
    scenario = SCENARIOS[name]
    deaths = tried(scenario, stock, tmp_path)
    expected = outcome(scenario, tmp_path / "undisturbed")
    wrong: dict[str, object] = {}
    for place, folder in one_in(ONE_IN.get(scenario.job, 1), list(deaths.places.items())):
        tally.add("faults tried")
        try:
            scenario.do(scenario.lake(stock.spark, folder))
            lost, doubled = lost_and_doubled(expected, outcome(scenario, folder, tmp_path / "undisturbed"))
        except Exception as error:
            wrong[place] = error
            continue
        tally.add("rows lost", lost)
        tally.add("rows doubled", doubled)
        if lost or doubled:
            wrong[place] = f"{lost} rows lost, {doubled} rows too many"
        else:
            tally.add("faults survived")
    assert wrong == {}
    assert right(scenario, stock.spark, list(deaths.places.values())[1])


def workers(log: Path) -> Generator[Worker, None, None]:
    """One process after the other, the next of which starts while this one works."""
    coming = Worker(log, FOR_FEW_ROWS)
    try:
        while True:
            now, coming = coming, Worker(log, FOR_FEW_ROWS)
            with now:
                yield now.wait_ready()
    finally:
        coming.kill()
        coming.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_process_that_was_killed_for_good_leaves_the_same_when_the_job_is_asked_for_again(
    stock: Stock, tmp_path: Path, tally: Tally
) -> None:
    chance, expected, wrong = random.Random(7), {}, {}
    starting = workers(tmp_path / "log")
    for number, (name, nth, after) in enumerate((*POINTS, *[(name, 0, seconds) for name, seconds in MOMENTS])):
        scenario, folder, worker = SCENARIOS[name], tmp_path / str(number), next(starting)
        if name not in expected:
            stock.copy(scenario.finds, tmp_path / name, *scenario.optional)
            scenario.do(scenario.lake(stock.spark, tmp_path / name))
            expected[name] = outcome(scenario, tmp_path / name)
        stock.copy(scenario.finds, folder, *scenario.optional)
        lake = scenario.lake(stock.spark, folder)
        worker.ask(scenario.job, lake.config, (nth, bool(after), []) if nth else None, **scenario.options(folder))
        if not nth:
            time.sleep(chance.uniform(0, after))
            worker.kill()
        assert worker.ended() == -9, (name, nth, after)
        tally.add("faults tried")
        scenario.do(lake)
        lost, doubled = lost_and_doubled(expected[name], outcome(scenario, folder, tmp_path / name))
        for figure, count in {
            "rows lost": lost,
            "rows doubled": doubled,
            "faults survived": not (lost or doubled),
        }.items():
            tally.add(figure, count)
        if lost or doubled:
            wrong[name, nth, after] = (lost, doubled)
    starting.close()
    assert wrong == {}


# A taste of it


def test_whatever_takes_the_lock_is_declared_as_a_write() -> None:
    """Or else a kill before or after it would never be tried."""
    public = {name: each for name, each in inspect.getmembers(Table, inspect.isfunction) if not name.startswith("_")}
    writing = {
        name
        for name, each in public.items()
        if "self.lock()" in (code := inspect.getsource(each)) or "_making()" in code
    }
    through_others = {
        name for name, each in public.items() if any(f"self.{one}(" in inspect.getsource(each) for one in writing)
    }
    assert writing | through_others == set(WRITES)


@pytest.mark.slow
def test_an_ingest_that_died_on_its_way_completes_the_file_when_it_is_asked_for_again(
    stock: Stock, tmp_path: Path
) -> None:
    scenario, found = SCENARIOS["ingest"], []
    for nth in (0, 2, 3):  # not at all, before its torn line is rejected, and with a table of rejected events made
        stock.copy(scenario.finds, tmp_path / str(nth))
        lake = scenario.lake(stock.spark, tmp_path / str(nth))
        with killing(nth, after=True), pytest.raises(Killed) if nth else nullcontext():
            scenario.do(lake)
        if nth:
            scenario.do(lake)
        found.append(outcome(scenario, lake.folder))
    assert found[0]["events"].total() == 2
    assert found[1:] == found[:1] * 2

"""A kill may fall before or after any write of any job: asked for again, the job leaves what it would have left.

A kill leaves what is on the disk. So each job is done once, and before and after each of its writes the folder is
copied; each copy is then a lake in which somebody starts the job again.
"""

import inspect
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tables.delta import LOCK_FILE, WRITES, Table
from tests.faults.lakes import SCENARIOS, Scenario, Stock, contents, lost_and_doubled
from tests.jobs.driver import JOBS
from tests.kills import Killed, each_write, killing
from tests.processes import Worker
from tests.summary import Tally

UNCOMMITTED = ("append", "merge", "overwrite", "create", "compact")  # what writes files first, and then its commit


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
        if (self.writes == 1 or name == "create") and name in UNCOMMITTED and any(path.endswith(".json") for path in news):
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
    assert deaths.unwatched == [], "what changes tables must be one of tables.delta.WRITES"
    return deaths


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
    expected = contents(tmp_path / "undisturbed", versions=scenario.versions)
    wrong: dict[str, object] = {}
    for place, folder in deaths.places.items():
        tally.add("faults tried")
        try:
            scenario.do(scenario.lake(stock.spark, folder))
            lost, doubled = lost_and_doubled(expected, contents(folder, versions=scenario.versions))
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

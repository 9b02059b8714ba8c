"""Each of these faults of the product is found by histories of one rule, as the rows of some table differ."""

from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.few_rows import for_few_rows
from tests.machine.histories import Teller
from tests.machine.mutants import OTHERS, QUICK, Mutant
from tests.machine.places import over_memory
from tests.machine.player import Player
from tests.machine.playing import Played
from tests.machine.steps import Step
from tests.summary import Tally

SEED, USERS = 1, 300


@pytest.mark.parametrize(
    "mutant", [*[pytest.param(m, marks=pytest.mark.broad) for m in QUICK[:-1]], QUICK[-1]], ids=lambda m: m.name
)
def test_a_fault_is_found(spark: SparkSession, tmp_path: Path, tally: Tally, mutant: Mutant) -> None:
    told = assert_found(spark, tmp_path, tally, mutant)
    with for_few_rows(spark):  # without the fault the same histories are right
        Played(spark, tmp_path, over_memory, mutant.rule, verifies=False).assert_right(told)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", OTHERS, ids=lambda mutant: mutant.name)
def test_other_faults_are_found(spark: SparkSession, tmp_path: Path, tally: Tally, mutant: Mutant) -> None:
    assert_found(spark, tmp_path, tally, mutant)


@pytest.mark.slow
def test_a_fault_is_told_as_a_history_of_few_events(spark: SparkSession, tmp_path: Path) -> None:
    mutant = QUICK[0]
    steps = Teller(mutant.rule, Random(SEED), users=100, rounds=1).tell()
    with for_few_rows(spark), mutant.alive(), pytest.raises(AssertionError, match="sessions: missing") as told:
        Played(spark, tmp_path, over_memory, mutant.rule, verifies=False).assert_right(steps)
    events = str(told.value).count("timestamp_micros(")
    assert 2 <= events <= 3, told.value


def assert_found(spark: SparkSession, folder: Path, tally: Tally, mutant: Mutant) -> list[Step]:
    """The steps that show it."""
    steps = Teller(
        mutant.rule, Random(SEED), users=USERS, rounds=mutant.rounds, jobs=mutant.jobs, changes=mutant.changes
    ).tell()
    with for_few_rows(spark), mutant.alive():
        told, seen = outcome(spark, folder, mutant, steps)
    tally.add("mutants of the product, found by the machine")
    tally.add("mutants that `verify` finds, too", seen)
    return steps[:told]


def outcome(spark: SparkSession, folder: Path, mutant: Mutant, steps: list[Step]) -> tuple[int, bool]:
    """How many steps it takes until a table is wrong, and whether `verify` then says so."""
    with over_memory(spark, folder, mutant.rule) as place:
        player = Player(spark, place, mutant.rule, goes_back=True)
        for number, step in enumerate(steps, 1):
            if player.play(step):
                return number, bool(player.verified())
    raise AssertionError(f"nothing shows that {mutant.name}")

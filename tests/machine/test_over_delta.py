"""The same over tables of Delta: positions, fences, files and `verify`, for a few configurations."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.few_rows import for_few_rows
from tests.machine.drawing import reproduction
from tests.machine.histories import Teller
from tests.machine.options import LAID, rule_of
from tests.machine.oracle import World
from tests.machine.places import over_delta, rows_of_delta
from tests.machine.playing import Played
from tests.machine.rule import FIRST, Rule
from tests.machine.steps import do
from tests.machine.test_machine import CHOICES, SEED
from tests.rounds import rounds

# Readers without Spark do not open files with times of all years.
OPENED = [choice for choice in CHOICES if abs(rule_of(choice).earlier) <= FIRST]
FEW, MORE = range(2), range(2, rounds(2) + 3)  # three; more where SESSIONIZER_TEST_TIMES says so


def play(spark: SparkSession, folder: Path, number: int, rounds: int) -> None:
    rule = replace(rule_of(OPENED[number]), laid=tuple(LAID)[number % 3])
    steps = Teller(rule, Random(f"{SEED} {number}"), users=12, rounds=rounds).tell()
    with for_few_rows(spark):
        Played(spark, folder / "played", over_delta, rule).assert_right(steps)


@pytest.mark.broad
@pytest.mark.parametrize("number", FEW)
def test_tables_of_delta_are_what_the_oracle_says(spark: SparkSession, tmp_path: Path, number: int) -> None:
    play(spark, tmp_path, number, 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", MORE)
def test_the_same_over_more_configurations(spark: SparkSession, tmp_path: Path, number: int) -> None:
    play(spark, tmp_path, number, 2)


@pytest.mark.broad
def test_a_history_that_is_told_is_a_test_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    rule = Rule(type_of_key="BIGINT", within=60, traced=True)
    steps = Teller(rule, Random(SEED), users=2, rounds=1).tell()
    told: dict[str, Any] = {"spark": spark, "tmp_path": tmp_path / "told"}
    with for_few_rows(spark):
        exec(reproduction(rule, steps), told)
    world = World(rule)
    for step in steps:
        do(world, step)
    found = rows_of_delta(told["done"].config.sessions.table, rule)
    assert sorted((row["k1"], row["session_start"], row["event_count"]) for row in found) == sorted(
        (*s.key, s.start, len(s.events)) for s in world.sessions()
    )

"""Random histories of random configurations: after every step every table is what the oracle says.

`SESSIONIZER_MACHINE_SEED=7` plays others.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lib.errors import SessionizerError
from tests.few_rows import for_few_rows
from tests.machine.drawing import reproduction
from tests.machine.histories import Teller
from tests.machine.options import covering, rule_of
from tests.machine.player import Difference, Player
from tests.machine.rule import Rule
from tests.machine.shrinking import numbers, shrunk
from tests.machine.steps import OWN, Step

SEED = int(os.environ.get("SESSIONIZER_MACHINE_SEED", "1"))
CHOICES = list(covering(Random(SEED)))
FEW = (0, 2)  # for every change


def differences(spark: SparkSession, folder: Path, rule: Rule, steps: list[Step]) -> list[Difference]:
    """What is wrong after the first step that leaves something wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    player = Player(spark, folder, rule)
    try:
        for step in steps:
            if found := player.play(step):
                return found
        return player.verified()
    except (SessionizerError, PySparkException, Py4JJavaError) as error:
        return [Difference("error", str(error))]


def failing(spark: SparkSession, folder: Path, rule: Rule, tables: set[str]) -> Callable[[list[Step]], bool]:
    """Whether a history leaves one of these tables wrong."""
    return lambda steps: bool(tables & {d.table for d in differences(spark, folder, rule, steps)})


def users_of(found: list[Difference], steps: list[Step]) -> set[int]:
    """Those with rows of a key that differs; a key's last column tells its user."""
    names = {str(d.key[-1]).lstrip("u") for d in found if d.key}
    return {user for user in {n // OWN for step in steps for n in numbers(step)} if str(user) in names}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=pytest.mark.broad if n in FEW else pytest.mark.slow) for n in range(len(CHOICES))]
)
def test_every_table_is_what_the_oracle_says(spark: SparkSession, tmp_path: Path, number: int) -> None:
    rule = rule_of(CHOICES[number])
    size = {"users": 8, "rounds": 1} if number in FEW else {"users": 60, "rounds": 5}
    steps = Teller(rule, Random(f"{SEED} {number}"), **size).tell()
    with for_few_rows(spark):
        found = differences(spark, tmp_path / "played", rule, steps)
        if not found:
            return
        fails = failing(spark, tmp_path / "smaller", rule, {d.table for d in found})
        small = shrunk(steps, fails, users_of(found, steps))
        left = differences(spark, tmp_path / "smaller", rule, small)
    raise AssertionError("\n".join([f"seed {SEED}", *map(str, left), reproduction(rule, small)]))

"""Random histories of random configurations: after every job every table is what the oracle says.

A combination is one configuration and the history of one key: events of its own that come in order, late, twice, at the
same time, are updated, deleted, written over, moved to another key. All keys of a configuration share its jobs (run,
flush, advance, backfill, readmit, rebuild), for a job takes a second however many they are; and its watermark, where
that is the table's. Where the rule has no key, all rows are one history. The configurations hold every pair of values
of two options (`options.py`).

Tables lie in memory (`memory.py`); a few histories are played over Delta, too (`test_over_delta.py`).
`SESSIONIZER_MACHINE_SEED=7` plays others, SESSIONIZER_TEST_TIMES multiplies the rounds of the long ones.
"""

import os
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.few_rows import for_few_rows
from tests.machine.histories import Teller
from tests.machine.options import covering, rule_of
from tests.machine.places import over_memory
from tests.machine.playing import Played, users_in
from tests.rounds import rounds
from tests.summary import Tally

SEED = int(os.environ.get("SESSIONIZER_MACHINE_SEED", "1"))
CHOICES = list(covering(Random(SEED)))
MANY, LONG = 240, 1
FEW = (10, 13, 25)  # for every change: of the quickest, each with a key
SHIFTING = [n for n, choice in enumerate(CHOICES) if rule_of(choice).lateness == "event"][::4]
CUT = [n for n, choice in enumerate(CHOICES) if rule_of(choice).by_content]
OF_MADE_KEYS = (1, 6, 14)
ODD = range(3, len(CHOICES), 4)
MORE = [n for n in range(32) if n not in FEW]


def play(
    spark: SparkSession,
    folder: Path,
    number: int,
    tally: Tally,
    *,
    users: int,
    rounds: int,
    shifting: bool = False,
    is_made: bool = False,
    odd: bool = False,
) -> None:
    rule = replace(rule_of(CHOICES[number]), is_made=is_made, filters=odd, fails=odd, erases=3 if odd else None)
    steps = Teller(rule, Random(f"{SEED} {number}"), users, rounds, shifting=shifting).tell()
    with for_few_rows(spark):
        played = Played(spark, folder, over_memory, rule, verifies=False)
        played.assert_right(steps)
    tally.add("machine: combinations of a configuration and a history", len(users_in(steps)) if rule.key else 1)
    tally.add("machine: steps of histories", len(steps))
    tally.add("machine: rows that differ from the oracle's", 0)


@pytest.mark.parametrize("number", FEW)
def test_every_table_is_what_the_oracle_says(spark: SparkSession, tmp_path: Path, tally: Tally, number: int) -> None:
    play(spark, tmp_path, number, tally, users=67, rounds=1)


@pytest.mark.broad
@pytest.mark.parametrize("number", MORE)
def test_the_same_over_more_pairs_of_options(spark: SparkSession, tmp_path: Path, tally: Tally, number: int) -> None:
    play(spark, tmp_path, number, tally, users=20, rounds=1)


@pytest.mark.broad
@pytest.mark.parametrize("number", OF_MADE_KEYS)
def test_the_same_of_keys_that_sql_makes(spark: SparkSession, tmp_path: Path, tally: Tally, number: int) -> None:
    play(spark, tmp_path, number, tally, users=20, rounds=1, is_made=True)


@pytest.mark.broad
@pytest.mark.parametrize("number", ODD[:4])
def test_the_same_where_a_filter_leaves_events_out_and_an_expression_fails(
    spark: SparkSession, tmp_path: Path, tally: Tally, number: int
) -> None:
    play(spark, tmp_path, number, tally, users=20, rounds=1, odd=True)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", ODD[4:])
def test_the_same_of_odd_events_over_more_pairs_of_options(
    spark: SparkSession, tmp_path: Path, tally: Tally, number: int
) -> None:
    play(spark, tmp_path, number, tally, users=100, rounds=1, odd=True)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", range(len(CHOICES)))
def test_the_same_over_long_histories(spark: SparkSession, tmp_path: Path, tally: Tally, number: int) -> None:
    play(spark, tmp_path, number, tally, users=MANY, rounds=rounds(LONG))


@pytest.mark.slow
@pytest.mark.parametrize("number", CUT)
def test_the_same_where_content_ends_sessions(spark: SparkSession, tmp_path: Path, tally: Tally, number: int) -> None:
    play(spark, tmp_path, number, tally, users=40, rounds=2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", SHIFTING)
def test_the_same_where_lateness_and_policies_change(
    spark: SparkSession, tmp_path: Path, tally: Tally, number: int
) -> None:
    play(spark, tmp_path, number, tally, users=100, rounds=rounds(4), shifting=True)

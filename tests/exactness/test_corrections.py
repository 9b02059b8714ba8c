"""After any update or delete of the source the sessions are those of its rows."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, readmit
from tests.exactness.play import Play, at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
KINDS = [
    {"name": "kinds", "fn": "count_distinct", "of": "s"},
    {"name": "mean", "fn": "avg", "of": "v"},
    {"name": "p50", "fn": "approx_percentile", "of": "v", "percentile": 0.5},
]
OF_KINDS = "u STRING, at TIMESTAMP, s STRING, v DOUBLE"
# One key for each change of a DOUBLE, its old and its new value.
CHANGES = {
    "NaN to 5": ("NaN", "5", "5"),
    "infinity to 5": ("Infinity", "5", "5"),
    "5 to NaN": ("5", "NaN", "nan"),
    "5 to infinity": ("5", "Infinity", "inf"),
    "1.7e9 to one more": ("1700000000", "1700000001", "1700000001"),
    "1e-10 to 5e-10": ("1e-10", "5e-10", "5e-10"),
}
FUNCTIONS = ("max", "min", "first", "last", "sum")
QUARANTINED = {"corrections": "quarantine"}


# What a row does not show


@pytest.fixture(scope="module")
def unseen(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """a's one text has become another: as many kinds as before. b's null has become what the mean was anyway."""
    done = Play(spark, tmp_path_factory.mktemp("unseen"), OF_KINDS, time={"allowed_lateness": "1d"}, aggregates=KINDS)
    done.runs(
        """
        u | at | s | v
        a | 0  | x | 1
        b | 0  | x | 2
        b | 1  | x | -
        """
    )
    done.source("UPDATE {} SET s = IF(u = 'a', 'y', s), v = coalesce(v, 2)").run()
    return done


NEXT = """
    u | at | s | v
    a | 5  | y | 1
    b | 5  | x | 5
    """


def test_a_count_of_kinds_goes_on_from_the_corrected_values(unseen: Play, copied: Plays) -> None:
    copied(unseen).runs(NEXT).assert_sessions(
        """
        u | count | kinds
        a | 2     | 1
        """,
        u="a",
    )


def test_a_mean_goes_on_from_the_corrected_values(unseen: Play, copied: Plays) -> None:
    # (2 + 2 + 5) / 3
    copied(unseen).runs(NEXT).assert_sessions(
        """
        u | count | mean
        b | 3     | 3
        """,
        u="b",
    )


def test_a_backfill_heals_a_state_that_no_column_shows(unseen: Play, copied: Plays) -> None:
    copied(unseen).backfill(0, 10).runs(NEXT).assert_sessions(
        """
        u | count | kinds | mean
        a | 2     | 1     | 1
        b | 3     | 1     | 3
        """
    )


# Corrections of DOUBLEs


@pytest.fixture(scope="module")
def doubles(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    aggregates = [{"name": fn, "fn": fn, "of": "v"} for fn in FUNCTIONS]
    done = Play(spark, tmp_path_factory.mktemp("doubles"), "u STRING, at TIMESTAMP, v DOUBLE", aggregates=aggregates)
    events = "\n".join(f"{name} | 5 | {old}" for name, (old, _, _) in CHANGES.items())
    done.runs(f"u | at | v\n{events}\ntick | 100 | 1")
    values = " ".join(f"WHEN '{name}' THEN DOUBLE('{new}')" for name, (_, new, _) in CHANGES.items())
    done.source(f"UPDATE {{}} SET v = CASE u {values} END WHERE u <> 'tick'").run()
    return done


@pytest.mark.parametrize("change", CHANGES)
def test_a_corrected_double_is_in_every_aggregate(doubles: Play, change: str) -> None:
    (found,) = doubles.told("max | min | first | last | sum", u=change)
    assert found == dict.fromkeys(FUNCTIONS, CHANGES[change][2])


def test_a_corrected_double_is_in_an_approximate_percentile(play: Plays) -> None:
    p50 = {"name": "p50", "fn": "approx_percentile", "of": "v", "percentile": 0.5}
    done = play("u | at | v \n a | 5 | 5 \n tick | 100 | 1", "u STRING, at TIMESTAMP, v DOUBLE", aggregates=[p50])
    done.source("UPDATE {} SET v = 500 WHERE u = 'a'").run()
    done.assert_sessions("u | p50 \n a | 500", u="a")


# Deletes of what was rejected


def test_the_delete_of_a_rejected_event_leaves_the_sessions_of_its_time_whole(play: Plays) -> None:
    done = play(
        """
        u    | at  | g
        a    | 5   | 2
        a    | 10  | 20
        a    | 10  | -1
        a    | 15  | 1
        b    | 0   | 1
        tick | 100 | 1
        """,
        schema="u STRING, at TIMESTAMP, g INT",
        session={"gap": {"expr": "make_dt_interval(0, 0, g, 0)"}},
        aggregates=[],
    )
    done.source("DELETE FROM {} WHERE g = -1 OR u = 'b'").run()
    done.assert_sessions(
        """
        u    | start | end | count
        a    | 5     | 5   | 1
        a    | 10    | 15  | 2
        tick | 100   | 100 | 1
        """
    )


# Corrections in quarantine


@pytest.fixture(scope="module")
def quarantined(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """a's 3 has become 4 in the source, and b is gone from it; the sessions stay."""
    done = Play(spark, tmp_path_factory.mktemp("quarantined"), corrections="quarantine", late_events="amend")
    done.runs("a@5=3 b@5=7 tick@100")
    done.source("UPDATE {} SET n = 4 WHERE u = 'a'").source("DELETE FROM {} WHERE u = 'b'").run()
    return done


def test_a_table_with_quarantined_corrections_is_right(quarantined: Play) -> None:
    assert quarantined.verify().differing == 0


def test_the_counts_of_a_run_with_quarantined_corrections_add_up(quarantined: Play) -> None:
    assert quarantined.verify().broken["the counts of every run add up"] == 0


def test_a_backfill_leaves_quarantined_corrections_unmade(quarantined: Play, copied: Plays) -> None:
    copied(quarantined).backfill(0, 10).assert_sessions(
        """
        u    | start | end | count | total
        a    | 5     | 5   | 1     | 3
        b    | 5     | 5   | 1     | 7
        tick | 100   | 100 | 1     | 1
        """
    )


def test_a_rebuild_leaves_quarantined_corrections_unmade(quarantined: Play, copied: Plays) -> None:
    done = copied(quarantined)
    before = done.told_rejected("u | event_time | reason | kept")
    done.rebuild().assert_sessions(
        """
        u    | start | end | count | total
        a    | 5     | 5   | 1     | 3
        b    | 5     | 5   | 1     | 7
        tick | 100   | 100 | 1     | 1
        """
    )
    assert done.told_rejected("u | event_time | reason | kept") == before
    done.assert_clean()
    done.readmit(0, 10).assert_sessions(
        """
        u    | start | end | count | total
        a    | 5     | 5   | 1     | 4
        tick | 100   | 100 | 1     | 1
        """
    )


def test_a_late_event_joins_the_events_whose_correction_is_in_quarantine(quarantined: Play, copied: Plays) -> None:
    copied(quarantined).runs("a@6=1 b@6=1").assert_sessions(
        """
        u    | start | end | count | total
        a    | 5     | 6   | 2     | 4
        b    | 5     | 6   | 2     | 8
        tick | 100   | 100 | 1     | 1
        """
    )


def test_a_readmitted_correction_is_made(quarantined: Play, copied: Plays) -> None:
    done = copied(quarantined).readmit(0, 10)
    done.assert_sessions(
        """
        u    | start | end | count | total
        a    | 5     | 5   | 1     | 4
        tick | 100   | 100 | 1     | 1
        """
    )
    done.assert_rejected("u | reason")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("MAP<INT, STRING>", "map(-2, 'y', 1, 'x')"),
        ("ARRAY<STRUCT<of: MAP<STRING, MAP<BIGINT, INT>>>>", "array(named_struct('of', map('x', map(3L, 1))))"),
        ("MAP<DATE, MAP<TIMESTAMP, INT>>", "map(DATE'2026-01-02', map(TIMESTAMP'2026-01-02 03:04:05.678', 1))"),
    ],
)
def test_a_deleted_event_with_a_map_stays_as_it_was(play: Plays, kind: str, value: str) -> None:
    aggregates = [{"name": "latest", "fn": "last", "of": "to_json(m)"}]
    done = play("b@5", f"u STRING, at TIMESTAMP, n INT, m {kind}", corrections="quarantine", aggregates=aggregates)
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'2026-01-01 00:05', 1, {value})").run()
    before = done.row("a")["latest"]
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.runs("a@6").backfill(0, 10).assert_clean()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.readmit(6, 7)
    assert (done.row("a")["event_count"], done.row("a")["latest"]) == (1, before)
    done.readmit(0, 10).assert_sessions("u | start \n b | 5")


# A flush beside a delete


def test_a_flush_goes_by_the_events_that_are_left(play: Plays) -> None:
    done = play("a@0 b@5")
    done.source("DELETE FROM {} WHERE u = 'b'").flush()
    # a's reach is 10: an event of minute 12 is not older than any mark.
    done.runs("c@12").assert_sessions("u | start | final \n c | 12 | no", u="c")


def test_a_flush_does_not_go_by_an_event_that_has_come_and_gone(play: Plays) -> None:
    done = play("a@0").add("b@5")
    done.source("DELETE FROM {} WHERE u = 'b'").flush()
    done.runs("c@12").assert_sessions("u | start | final \n c | 12 | no", u="c")


def test_an_update_is_readmitted_whole_by_one_of_its_keys(play: Plays) -> None:
    done = play("a@5 tick@100", corrections="quarantine")
    done.source("UPDATE {} SET u = 'b' WHERE u = 'a'").run()
    readmit(done.kind, LookBack(at(0), at(1440), ('{"u": "a"}',), now=done.now))
    done.assert_sessions("u | start \n b | 5 \n tick | 100")
    done.assert_rejected("u | reason")
    done.assert_clean()

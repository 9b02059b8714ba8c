"""Times, types and schemas at the edge of what a table can hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.exactness.play import Play, SourceError, fails_today
from tests.exactness.slides import Slides

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
LAST = "timestamp_micros(9223372036854775807)"
FIRST = "timestamp_micros(-9223372036854775807)"
EARLIEST = "(-4611686018427387903), (0), (1), (2)"
MINUTES = "(INTERVAL 0 MINUTES), (INTERVAL 9 MINUTES)"
OVERFLOW = (PySparkException, Py4JJavaError)


def test_an_event_of_the_last_microsecond_there_is_is_rejected(play: Plays) -> None:
    done = play("a@5 b@6")
    done.source(f"INSERT INTO {{}} SELECT 'a', {LAST}, 1").run()
    done.runs("a@7").assert_sessions("u | start | end | count \n a | 5 | 7 | 2 \n b | 6 | 6 | 1")
    done.assert_rejected("u | reason \n a | in_the_future")


@fails_today("Delta's change feed cannot hand over the first microsecond that there is, and every run stops", OVERFLOW)
def test_an_event_of_the_first_microsecond_there_is_is_rejected(play: Plays) -> None:
    done = play("a@5 b@6")
    done.source(f"INSERT INTO {{}} SELECT 'a', {FIRST}, 1").run()
    done.runs("a@7").assert_sessions("u | start | end | count \n a | 5 | 7 | 2 \n b | 6 | 6 | 1")
    done.assert_rejected("u | reason \n a | null_time")


@pytest.fixture(scope="module")
def far(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Events of far years, and of a leap day; nothing is late, nor ahead of its time."""
    done = Play(
        spark,
        tmp_path_factory.mktemp("far"),
        time={"allowed_lateness": "10000000d", "max_future_skew": "10000000d"},
    )
    done.add("tick@0").init().run()
    for time in ("0001-01-01 00:00:00", "2028-02-29 23:59:00", "9999-12-31 23:40:00"):
        done.source(f"INSERT INTO {{}} SELECT 'a', TIMESTAMP'{time}' + x, 1 FROM VALUES {MINUTES} AS v(x)")
    done.run()
    return done


def test_years_1_and_9999_and_leap_days_are_like_all_others(far: Play) -> None:
    found = far.sessions("u", "session_start", "session_end", "event_count")
    assert [row[1:] for row in found if row[0] == "a"] == [
        ("0001-01-01 00:00:00", "0001-01-01 00:09:00", 2),
        ("2028-02-29 23:59:00", "2028-03-01 00:08:00", 2),
        ("9999-12-31 23:40:00", "9999-12-31 23:49:00", 2),
    ]


def test_a_table_with_an_event_of_the_year_9999_is_clean(far: Play) -> None:
    far.assert_clean()


EDGE = -(2**62)  # the year -144169


@pytest.mark.parametrize(
    "session", [{}, {"cut_at": "midnight"}, {"gap": {"expr": "make_dt_interval(0, 0, n)"}}], ids=str
)
def test_times_begin_in_a_year_from_which_all_can_be_reckoned(
    spark: SparkSession, tmp_path: Path, session: dict[str, Any]
) -> None:
    """Without a later event in the same run, so that marks and ends go by these."""
    zone = {} if "gap" in session else {"time_zone": "America/New_York"}
    done = Play(spark, tmp_path, session=zone | session, time={"allowed_lateness": "10000000d"}).add("").init()
    done.source(f"INSERT INTO {{}} SELECT 'a', timestamp_micros({EDGE} + x), 9 FROM VALUES {EARLIEST} AS v(x)").run()
    assert done.told("u | count") == [{"u": "a", "count": "2"}]
    done.runs("a@5 | b@6").assert_clean()
    done.assert_rejected("u | reason \n a | null_time \n a | null_time")
    assert len(done.told("u")) == 3
    assert done.verify(high=0).clean


@pytest.mark.parametrize(
    "sliding", [{"grace": "10000000d"}, {"time_difference": "4000000d", "time_unit": "1d"}], ids=str
)
def test_so_do_windows(spark: SparkSession, tmp_path: Path, sliding: dict[str, str]) -> None:
    done = Slides(spark, tmp_path, sliding=sliding).add("").init()
    done.source(f"INSERT INTO {{}} SELECT 'a', timestamp_micros({EDGE} + x), 9 FROM VALUES {EARLIEST} AS v(x)").run()
    done.runs("a@5 | b@6").assert_clean()
    assert [row["reason"] for row in done.told_rejected("reason")] == ["null_time"] * 2


@pytest.mark.parametrize(
    "change",
    ["ALTER COLUMN w TYPE DOUBLE", "RENAME COLUMN w TO x", "DROP COLUMN w"],
    ids=["widened", "renamed", "dropped"],
)
def test_a_change_of_a_column_that_nobody_uses_leaves_late_events_rejected(play: Plays, change: str) -> None:
    done = play(
        """
        u    | at  | n | w
        a    | 5   | 1 | 1
        tick | 100 | 1 | 1
        """,
        schema="u STRING, at TIMESTAMP, n INT, w INT",
    )
    done.runs("u | at | n | w \n a | 7 | 1 | 1")
    done.source(
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    ).run()
    done.assert_clean()
    done.source(f"ALTER TABLE {{}} {change}").run()
    done.assert_clean()
    # Of the row's time, so that its session is made anew from its events.
    done.source("UPDATE {} SET n = 4 WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:05:00'").run()
    done.assert_sessions("u | start | end | count | total \n a | 5 | 5 | 1 | 4", u="a")
    done.assert_clean()
    done.source("DELETE FROM {} WHERE at = TIMESTAMP'2026-01-01 00:07:00'").run()
    done.assert_rejected("u | reason")


@pytest.mark.parametrize("policy", [{}, {"late_events": "drop"}, {"corrections": "quarantine"}], ids=str)
def test_what_happens_beside_a_change_of_columns_finds_what_was_rejected(play: Plays, policy: dict[str, str]) -> None:
    """Of two rows that only a dropped column tells apart one is deleted, and a late one comes, in the same run."""
    done = play(
        """
        u    | at  | n | w
        a    | 5   | 1 | 1
        b    | 5   | 1 | 1
        tick | 100 | 1 | 1
        """,
        schema="u STRING, at TIMESTAMP, n INT, w INT",
        **policy,
    )
    done.runs("u | at | n | w \n a | 7 | 1 | 1 \n a | 7 | 1 | 2")
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')").run()
    done.source("DELETE FROM {} WHERE at = TIMESTAMP'2026-01-01 00:07:00' AND w = 2")
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.source("ALTER TABLE {} DROP COLUMN w")
    done.schema = "u STRING, at TIMESTAMP, n INT"
    done.add("a@8").run()
    if policy == {"corrections": "quarantine"}:
        waiting = "b | 5 | correction | in"
        done.assert_rejected(f"u | event_time | reason | kept \n a | 7 | late | out \n a | 8 | late | out \n {waiting}")
    else:
        done.assert_rejected("u | event_time | reason \n a | 7 | late \n a | 8 | late")
    done.assert_clean()
    done.backfill(0, 60).assert_sessions("u | start | end | count \n a | 5 | 8 | 3", u="a")
    done.assert_clean()


def test_a_run_that_was_cut_off_behind_a_change_of_columns_is_finished(play: Plays) -> None:
    done = play("u | at | n | w \n tick | 100 | 1 | 1", schema="u STRING, at TIMESTAMP, n INT, w INT")
    done.runs("u | at | n | w \n a | 7 | 1 | 1")
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')").run()
    done.source("ALTER TABLE {} RENAME COLUMN w TO x").run_cut_off()
    done.run()
    done.assert_clean()
    done.source("ALTER TABLE {} RENAME COLUMN x TO w").rebuild().assert_sessions("u | start \n a | 7 \n tick | 100")
    done.assert_clean()


WITH_W = "u STRING, at TIMESTAMP, n INT, w {}"


@pytest.fixture
def renaming(spark: SparkSession, tmp_path: Path) -> Callable[..., Play]:
    """a@5, tick@100, and late a@7, each with a value in w, which nobody uses; its columns can be renamed."""

    def made(kind: str, value: str, **sections: Any) -> Play:
        done = Play(spark, tmp_path, WITH_W.format(kind), **sections)
        for minutes in ({"a": 5, "tick": 100}, {"a": 7}):
            rows = ", ".join(f"('{u}', TIMESTAMP'2026-01-01' + INTERVAL {m} MINUTES, 1)" for u, m in minutes.items())
            done.append_frame(spark.sql(f"SELECT *, CAST({value} AS {kind}) AS w FROM VALUES {rows} AS t(u, at, n)"))
            if "tick" in minutes:
                done.init()
                done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
            done.run()
        return done

    return made


def assert_still_late(done: Play, *others: str) -> None:
    """Its session is made anew by an update of the other event of a; then the late one goes. others: rows beside."""
    done.source("UPDATE {} SET n = 4 WHERE u = 'a' AND at = TIMESTAMP'2026-01-01 00:05:00'").run()
    rows = " \n ".join(["u | start | end | count | total", "a | 5 | 5 | 1 | 4", *others])
    done.assert_sessions(rows, u="a")
    done.source("DELETE FROM {} WHERE at = TIMESTAMP'2026-01-01 00:07:00'").run()
    done.assert_rejected("u | reason")
    done.assert_clean()


NESTED = "STRUCT<a: INT, b: ARRAY<STRUCT<c: INT>>>", "named_struct('a', 1, 'b', array(named_struct('c', 2)))"


@pytest.mark.parametrize(
    ("column", "changes"),
    [
        (("INT", "1"), ["DROP COLUMN w", "ADD COLUMN w INT"]),
        (NESTED, ["RENAME COLUMN w.a TO x"]),
        (NESTED, ["DROP COLUMN w.a"]),
        (NESTED, ["RENAME COLUMN w.b.element.c TO x", "ADD COLUMN w.d INT"]),
    ],
    ids=["dropped and added", "renamed within", "dropped within", "renamed and added within"],
)
def test_rejected_rows_follow_a_column_by_its_name_in_the_files(
    renaming: Callable[..., Play], column: tuple[str, str], changes: list[str]
) -> None:
    done = renaming(*column)
    for change in changes:
        done.source(f"ALTER TABLE {{}} {change}")
    done.run()
    done.assert_clean()
    assert_still_late(done)


def test_an_increment_ends_before_a_change_of_columns(renaming: Callable[..., Play]) -> None:
    done = renaming("INT", "1")
    done.append_frame(done.spark.sql("SELECT 'a' AS u, TIMESTAMP'2026-01-01 01:41:00' AS at, 1 AS n, 1 AS w"))
    done.source("ALTER TABLE {} RENAME COLUMN w TO x").run()
    done.assert_sessions("u | start | count \n a | 5 | 1 \n a | 101 | 1", u="a")
    assert_still_late(done, "a | 101 | 101 | 1 | 1")


def test_a_rebuild_needs_no_columns_of_before_where_nothing_lasts(renaming: Callable[..., Play]) -> None:
    done = renaming("STRING", "'n/a'")
    done.source("ALTER TABLE {} DROP COLUMN w")
    done.source("ALTER TABLE {} ADD COLUMN w INT").rebuild()
    done.assert_sessions("u | start | count \n a | 5 | 2", u="a")
    done.assert_clean()


def test_a_version_that_is_gone_is_named_where_rejected_rows_are_told_by_it(renaming: Callable[..., Play]) -> None:
    done = renaming("INT", "1", late_events="drop")
    before = list(Path(done.config.source.table).glob("*.parquet"))
    done.source("ALTER TABLE {} RENAME COLUMN w TO x").source("OPTIMIZE {}")
    for file in before:
        file.unlink()
    with pytest.raises(SourceError, match="kept as hashes cannot be found again"):
        done.run()
    done.rebuild().assert_sessions("u | start | count \n a | 5 | 2", u="a")


def test_one_stream_for_the_whole_table_is_amended_and_corrected(play: Plays) -> None:
    done = play("a@5=1 tick@100=2 | a@14=3", source={"key": []}, late_events="amend")
    done.source("UPDATE {} SET n = 5 WHERE n = 1").run()
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.assert_sessions("start | end | count | total \n 5 | 14 | 2 | 8")
    done.assert_clean()


def test_one_stream_for_the_whole_table_is_revived(play: Plays) -> None:
    by_session = {"lateness": "session", "revive": True}
    done = play("a@80=1 tick@100=2 | b@75=3 b@90=4", source={"key": []}, time=by_session)
    # 80 is final. With 90, which reaches to 100, all are one session.
    done.assert_sessions("start | end | count | total \n 75 | 100 | 4 | 10")
    done.assert_clean()

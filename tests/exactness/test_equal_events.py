"""Of equal events those that are rejected go first, whether a run reads what became of them or a rebuild."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.jobs.run import side_tables
from sessionizer.lib.errors import SourceError, UsageError
from tests.exactness.play import BY_NAME, Play, minute
from tests.exactness.test_forgetting import forget
from tests.kills import killed_at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
NOTHING = "u | event_time | reason"
TWIN = """
    u | start | end | count
    a | 5     | 5   | 1
    b | 6     | 6   | 1
    """
BOTH_GO, ONE_COMES = "DELETE FROM {} WHERE u = 'a'", "a@5"
GONE = ("u = 'c' AND minute(at) = 1", "u = 'c' AND minute(at) = 3")
AGAIN = "VALUES ('a', TIMESTAMP'2026-01-01 00:05:00', 1, NULL)"
by_whom = pytest.mark.parametrize("runs", [True, False], ids=["read by a run", "unread"])


@pytest.fixture
def two(spark: SparkSession, tmp_path: Path) -> Play:
    """A row from before the start, and one just like it, which counts."""
    done = Play(spark, tmp_path, source={"start": {"version": 1}}, time={"allowed_lateness": "1h"})
    done.add("a@5").add("a@5 b@6").init().run()
    done.assert_rejected("u | event_time | reason \n a | 5 | before_start")
    return done


@by_whom
def test_of_equal_events_a_rebuild_leaves_those_of_before_the_start_out_as_long_as_they_are_there(
    two: Play, runs: bool
) -> None:
    two.source(BOTH_GO).add(ONE_COMES)
    if runs:
        two.run()
    two.rebuild().assert_sessions(TWIN)
    two.assert_rejected(NOTHING)
    two.assert_clean()


def test_what_goes_and_comes_again_before_a_rebuild_has_not_changed(two: Play) -> None:
    two.source(BOTH_GO).add("a@5 a@5").rebuild().assert_sessions(TWIN)
    two.assert_rejected("u | event_time | reason \n a | 5 | before_start")
    two.assert_clean()


def test_a_rebuild_by_another_rule_waits_for_one_that_was_cut_off_before_it_let_an_event_in(two: Play) -> None:
    two.source(BOTH_GO).add(ONE_COMES)
    with killed_at(side_tables, "write"):
        two.rebuild()
    with pytest.raises(UsageError, match="stay out for good"):
        two.change(session={"gap": "20m"}).rebuild()
    two.change().run()
    two.change(session={"gap": "20m"}).rebuild().assert_sessions(TWIN)
    two.assert_rejected(NOTHING)
    two.assert_clean()


@by_whom
def test_of_equal_events_those_go_first_that_are_late_by_what_has_been_forgotten(play: Plays, runs: bool) -> None:
    done = forget(play("x@0 a@5=2 a@12 tick@1441")).runs("a@5=2")
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.source("DELETE FROM {} WHERE n = 2").add("a@5=2")
    if runs:
        done.run()
    done.rebuild().assert_sessions("u | start | end | count \n a | 5 | 12 | 2", u="a")
    done.assert_rejected(NOTHING)
    done.assert_clean()


def test_of_equal_events_the_oldest_goes_first_behind_a_rebuild_too(play: Plays) -> None:
    done = play("a@5", now=10, corrections="quarantine")
    later = f"TIMESTAMP'{minute(200)}'"
    done.source(f"UPDATE {{}} SET at = {later}").run()
    done.runs("a@200")  # which is of the future, and just like the row of the update that waits
    done.assert_rejected(
        "u | event_time | reason \n a | 5 | correction \n a | 200 | correction \n a | 200 | in_the_future"
    )
    done.rebuild()
    done.source("INSERT OVERWRITE {} SELECT * FROM {} LIMIT 1").run()
    done.assert_rejected("u | event_time | reason \n a | 5 | correction \n a | 200 | in_the_future")
    done.at(400).backfill(0, 300)
    done.assert_sessions("u | start | end | count \n a | 5 | 5 | 1 \n a | 200 | 200 | 1")
    done.assert_clean()


@pytest.mark.parametrize("renames", [False, True])
def test_so_does_one_that_is_judged_anew(play: Plays, renames: bool) -> None:
    schema = "u STRING, at TIMESTAMP, n INT, dt INT"
    done = play("a@5 | a@200", schema=schema, now=10, corrections="quarantine")
    done.source(f"UPDATE {{}} SET at = TIMESTAMP'{minute(200)}' WHERE minute(at) = 5").run()
    if renames:
        done.source(BY_NAME).source("ALTER TABLE {} RENAME COLUMN dt TO day").run()
    done.rebuild()
    done.source("INSERT OVERWRITE {} SELECT * FROM {} LIMIT 1").run()
    done.assert_rejected("u | event_time | reason \n a | 5 | correction \n a | 200 | correction")
    done.assert_clean()


def test_so_does_a_copy_before_an_update_that_waits(play: Plays) -> None:
    by_n = {"dedupe": {"by": ["n"], "within": "1h"}}
    done = play("a@5=1 a@5=1 a@500=1", source=by_n, corrections="quarantine")
    done.source(f"UPDATE {{}} SET at = TIMESTAMP'{minute(5)}' WHERE hour(at) = 8").run()
    told = "u | event_time | reason \n a | 5 | correction \n a | 500 | correction"
    done.assert_rejected(f"{told} \n a | 5 | duplicate")
    done.rebuild().assert_rejected(f"{told} \n a | 5 | duplicate")
    done.source("INSERT OVERWRITE {} SELECT * FROM {} LIMIT 2").run()
    done.assert_rejected(told)
    done.assert_clean()


def test_an_update_that_waits_is_late_by_what_has_been_forgotten_beside_an_equal_one_that_is_unread(
    play: Plays,
) -> None:
    done = forget(play("x@0 a@30=2 tick@1441 a@1430=3", corrections="quarantine"))
    done.source(f"UPDATE {{}} SET at = TIMESTAMP'{minute(5)}', n = 3 WHERE n = 2").run()
    done.add("a@5=3").rebuild()
    done.assert_rejected("u | event_time | reason \n a | 5 | late \n a | 5 | late \n a | 30 | correction")
    done.source("INSERT OVERWRITE {} SELECT DISTINCT * FROM {}").run()
    done.assert_rejected("u | event_time | reason \n a | 5 | late \n a | 30 | correction")
    done.assert_clean()


# What is unread, as far as it can be read


def test_a_rebuild_goes_on_over_columns_of_another_type_that_no_run_can_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    sections: dict[str, Any] = {"source": {"start": {"version": 1}}, "aggregates": []}
    done = Play(spark, tmp_path, **sections).add("a@5").add("a@6 b@6").init()
    done.run()
    source = done.config.source.table
    rows = spark.sql(f"SELECT u, at, concat('x', n) AS n FROM delta.`{source}`")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(source)
    with pytest.raises(SourceError, match="makes all sessions anew"):
        done.run()
    done.rebuild().assert_sessions("u | start | end | count \n a | 5 | 6 | 2 \n b | 6 | 6 | 1")
    done.assert_clean()


def test_what_lies_before_changes_that_nobody_can_read_is_not_read_either(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, note STRING", source={"start": {"version": 1}})
    done.add("a@5").add("a@5 b@6").init().source(BY_NAME).run()
    done.source(BOTH_GO).source("ALTER TABLE {} RENAME COLUMN note TO remark")
    for feed in ("false", "true"):
        done.source(f"ALTER TABLE {{}} SET TBLPROPERTIES (delta.enableChangeDataFeed = {feed})")
        if feed == "false":
            done.source(f"INSERT INTO {{}} {AGAIN}").source(f"INSERT INTO {{}} {AGAIN}")
    done.rebuild().assert_sessions(TWIN)
    done.assert_rejected("u | event_time | reason \n a | 5 | before_start")


def stitched(spark: SparkSession, folder: Path) -> Play:
    """By users where devices have one; `a@5` lies before the start."""
    devices = f"delta.`{folder / 'devices'}`"
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"CREATE TABLE {devices} (u STRING, user_id STRING) USING delta {feed}")
    stitch = {"table": str(folder / "devices"), "from": "u", "to": "user_id"}
    source = {"start": {"version": 1}, "stitch": stitch, "key": [{"name": "who", "expr": "coalesce(user_id, u)"}]}
    done = Play(spark, folder, source=source).add("a@5").add("a@6 b@6").init()
    done.run()
    return done


def test_a_rebuild_keeps_which_of_those_came_first_that_are_equal_without_a_column_that_is_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, d INT", corrections="quarantine").at(10)
    done.add("u | at | n | d \n a | 5 | 1 | 0").init().run()
    done.add("u | at | n | d \n a | 200 | 1 | 1").run()
    done.source(f"UPDATE {{}} SET at = TIMESTAMP'{minute(200)}' WHERE d = 0").run()
    done.assert_rejected(
        """
        u | event_time | reason        | kept
        a | 5          | correction    | in
        a | 200        | correction    | out
        a | 200        | in_the_future | out
        """
    )
    done.source(BY_NAME).source("ALTER TABLE {} DROP COLUMN d")
    done.schema = "u STRING, at TIMESTAMP, n INT"
    done.rebuild().source("INSERT OVERWRITE {} SELECT * FROM {} LIMIT 1").run()
    waits = "u | event_time | reason | kept \n a | 5 | correction | in \n a | 200 | correction | out"
    done.assert_rejected(waits)  # of equal ones the first is gone
    done.assert_clean()


def with_deletion_vectors(done: Play) -> Play:
    """Twenty minutes of `c` in one file, of which two go, each by itself."""
    minute = "make_timestamp(2026, 1, 1, 2, id, 0)"
    done.source("ALTER TABLE {} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    done.source(f"INSERT INTO {{}} SELECT /*+ COALESCE(1) */ 'c', {minute}, 1 FROM range(20)")
    return done.source(f"DELETE FROM {{}} WHERE {GONE[0]}").source(f"DELETE FROM {{}} WHERE {GONE[1]}")


def test_a_rebuild_goes_on_where_what_lay_between_two_deletion_vectors_is_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 1}}, aggregates=[]).add("a@5").add("a@5 b@6").init()
    done.run()
    with_deletion_vectors(done).source("REORG TABLE {} APPLY (PURGE)").vacuumed()
    done.rebuild().assert_sessions(f"{TWIN} \n c | 120 | 139 | 18")
    done.assert_rejected("u | event_time | reason \n a | 5 | before_start")
    done.assert_clean()


def test_a_rebuild_reads_what_a_mapping_moves_of_a_source_with_deletion_vectors(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = stitched(spark, tmp_path)
    with_deletion_vectors(done).run()
    spark.sql(f"INSERT INTO delta.`{tmp_path / 'devices'}` VALUES ('c', 'cat')")
    done.rebuild()
    done.assert_sessions("who | start | end | count \n a | 6 | 6 | 1 \n b | 6 | 6 | 1 \n cat | 120 | 139 | 18")
    done.assert_rejected("who | event_time | reason \n a | 5 | before_start")
    done.assert_clean()


def test_a_rebuild_that_was_cut_off_is_finished_by_the_mapping_that_it_has_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = stitched(spark, tmp_path)
    with killed_at(side_tables, "write"):
        done.rebuild()
    spark.sql(f"INSERT INTO delta.`{tmp_path / 'devices'}` VALUES ('b', 'bob')")
    done.run()
    done.assert_sessions("who | start | end | count \n a | 6 | 6 | 1 \n bob | 6 | 6 | 1")
    done.assert_rejected("who | event_time | reason \n a | 5 | before_start")
    done.assert_clean()


def test_a_rebuild_is_foretold_before_rejected_events_follow_a_restore(two: Play) -> None:
    before = two.tables.sessions.table.version
    two.source(BOTH_GO).runs("a@5 b@7").damage(f"RESTORE {{}} TO VERSION AS OF {before}")
    told = plan(two.kind, two.said.append, two.now)
    assert (told.total("comes"), told.total("goes"), told.total("changes")) == (0, 0, 1)
    two.rebuild().assert_sessions("u | start | end | count \n a | 5 | 5 | 1 \n b | 6 | 7 | 2")
    two.assert_rejected(NOTHING)
    assert plan(two.kind, two.said.append, two.now).total("comes") == 0
    two.assert_clean()

"""Late events apart are events like all others to whatever comes after them: reached by it, and counted once."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.report import by_duckdb
from sessionizer.jobs.reporting.report_columns import days_of_keys
from tests.exactness.play import Play

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
APART = {"late_events": "separate"}


@pytest.fixture(scope="module")
def late(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """a's event of minute 5 came late, and is a row of its own."""
    return Play(spark, tmp_path_factory.mktemp("late"), late_events="separate").runs("tick@100 a@100 | a@5=3")


def test_late_events_are_rows_of_their_own(late: Play) -> None:
    late.assert_sessions(
        """
        u | start | end | count | total | late | final
        a | 5     | 5   | 1     | 3     | yes  | yes
        a | 100   | 100 | 1     | 1     | no   | no
        """,
        u="a",
    )


def test_a_deleted_user_leaves_no_late_session(late: Play, copied: Plays) -> None:
    done = copied(late)
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_sessions("u | start | end \n tick | 100 | 100")
    done.assert_rejected("u | reason")


def test_an_updated_late_event_is_counted_once_as_it_is(late: Play, copied: Plays) -> None:
    done = copied(late)
    done.source("UPDATE {} SET n = 4 WHERE n = 3").run()
    done.assert_sessions(
        """
        u | start | end | count | total
        a | 5     | 5   | 1     | 4
        a | 100   | 100 | 1     | 1
        """,
        u="a",
    )


@pytest.mark.parametrize("way", ["backfill", "readmit"])
def test_a_late_event_that_is_taken_in_is_counted_once(late: Play, copied: Plays, way: str) -> None:
    done = copied(late)
    getattr(done, way)(0, 10)
    done.assert_sessions(
        """
        u | start | end | count | total
        a | 5     | 5   | 1     | 3
        a | 100   | 100 | 1     | 1
        """,
        u="a",
    )


def test_a_late_session_does_not_move_the_clock_of_its_key(play: Plays) -> None:
    of_keys = {"watermark": {"per": "key"}, "idle_timeout": {"after": "30d", "clock": "processing_time"}}
    # The late event's reach is 105; the key's watermark is 100.
    play("a@100 | a@95 | a@103", time=of_keys, **APART).assert_sessions(
        """
        u | start | end | count | late
        a | 95    | 95  | 1     | yes
        a | 100   | 103 | 2     | no
        """
    )


def test_a_late_session_does_not_bridge_the_judgement_of_others(play: Plays) -> None:
    by_session = {"lateness": "session", "revive": True}
    # 69 to 95 reach 105. 55 reaches 65: only the late event of 60 lies between.
    play("tick@100 a@95 | a@60 | a@86 a@77 a@69 | a@55", time=by_session, **APART).assert_sessions(
        """
        u | start | end | count | late
        a | 55    | 55  | 1     | yes
        a | 60    | 60  | 1     | yes
        a | 69    | 95  | 4     | no
        """,
        u="a",
    )


# Corrections in quarantine


@pytest.fixture(scope="module")
def gone(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """a's late event is gone from the source, and still in its session."""
    folder = tmp_path_factory.mktemp("gone")
    done = Play(spark, folder, late_events="separate", corrections="quarantine").runs("tick@100 | a@5=3")
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_sessions("u | start | total | late \n a | 5 | 3 | yes \n tick | 100 | 1 | no")
    return done


def test_a_late_event_whose_delete_is_readmitted_leaves_its_session(gone: Play, copied: Plays) -> None:
    done = copied(gone).readmit(0, 10)
    done.assert_sessions("u | start \n tick | 100")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_a_late_event_whose_delete_is_in_quarantine_is_taken_in(gone: Play, copied: Plays) -> None:
    done = copied(gone).backfill(0, 10)
    done.assert_sessions("u | start | total | late \n a | 5 | 3 | no \n tick | 100 | 1 | no")
    done.assert_rejected("u | reason | kept \n a | correction | in")
    done.assert_clean()


def test_a_late_event_whose_update_is_readmitted_is_counted_once(play: Plays) -> None:
    done = play("tick@100 | a@5=3", corrections="quarantine", **APART)
    done.source("UPDATE {} SET n = 4 WHERE u = 'a'").run()
    done.readmit(0, 10).assert_sessions("u | start | total | late \n a | 5 | 4 | no \n tick | 100 | 1 | no")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_of_equal_events_the_late_one_is_taken_in_and_the_deleted_one_leaves(play: Plays) -> None:
    done = play("tick@100 a@5=3 | a@5=3", corrections="quarantine", **APART)
    done.source("DELETE FROM {} WHERE u = 'a'").source("INSERT INTO {} VALUES ('a', TIMESTAMP'2026-01-01 00:05', 3)")
    done.run()
    done.readmit(0, 10).assert_sessions("u | start | total | late \n a | 5 | 3 | no \n tick | 100 | 1 | no")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_when_the_delete_of_a_late_event_is_readmitted_its_copy_takes_its_place(play: Plays) -> None:
    sections = {"corrections": "quarantine", "source": {"dedupe": {"by": ["id"], "within": "1h"}}, **APART}
    done = play("u | at | id | n \n tick | 100 | 0 | 1", "u STRING, at TIMESTAMP, id INT, n INT", **sections)
    done.runs("u | at | id | n \n a | 5 | 1 | 3").runs("u | at | id | n \n a | 6 | 1 | 8")
    done.source("DELETE FROM {} WHERE n = 3").run()
    done.readmit(0, 10).assert_sessions("u | start | total | late \n a | 6 | 8 | no \n tick | 100 | 1 | no")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_the_report_counts_no_late_session_apart_as_a_keys_first(play: Plays) -> None:
    done = play("a@1500 tick@3000 | a@5", late_events="separate")
    done.assert_sessions("u | start | late \n a | 5 | yes \n a | 1500 | no \n tick | 3000 | no")
    days = days_of_keys(by_duckdb(done.config), ["u"])
    assert [(row["day"], row["new"], row["returning_"]) for row in days] == [("2026-01-02", 1, 0), ("2026-01-03", 1, 0)]

"""Of equal events those that are rejected go first, whether a run reads what became of them or a rebuild."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.run import side_tables
from sessionizer.lib.errors import UsageError
from tests.exactness.play import Play
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

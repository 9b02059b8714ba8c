"""What is over stays over: horizon and watermark never go back, and only what is accepted leaves rejected_events."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.exactness.play import Play

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]


# A longer lateness


def test_a_longer_lateness_does_not_move_the_horizon_back(play: Plays) -> None:
    done = play("a@0 a@100").change(time={"allowed_lateness": "5h"}).runs("a@5")
    done.assert_sessions(
        """
        u | start | end | count | status
        a | 0     | 0   | 1     | final
        a | 100   | 100 | 1     | open
        """
    )
    done.assert_rejected(
        """
        u | event_time | reason | horizon
        a | 5          | late   | 100
        """
    )


def test_a_backfill_after_a_longer_lateness_leaves_final_sessions_final(play: Plays) -> None:
    done = play("a@0 a@100").change(time={"allowed_lateness": "5h"}).backfill(0, 10)
    done.assert_sessions(
        """
        u | start | end | count | status
        a | 0     | 0   | 1     | final
        a | 100   | 100 | 1     | open
        """
    )


# Events of the future


@pytest.fixture
def ahead(play: Plays) -> Play:
    """At minute 10 an event of minute 600 is of the future, by more than the hour that clocks may differ."""
    return play("a@5 b@600", now=10)


def test_a_backfill_leaves_an_event_of_the_future_rejected(ahead: Play) -> None:
    ahead.backfill(0, 1440).assert_rejected("u | event_time | reason \n b | 600 | in_the_future")


def test_a_readmit_leaves_an_event_of_the_future_rejected(ahead: Play) -> None:
    ahead.readmit(0, 1440).assert_rejected("u | event_time | reason \n b | 600 | in_the_future")


def test_a_backfill_takes_in_an_event_whose_time_has_come(ahead: Play) -> None:
    ahead.at(605).backfill(0, 1440)
    ahead.assert_sessions("u | start | count \n a | 5 | 1 \n b | 600 | 1")
    ahead.assert_rejected("u | reason")


# Where reading begins


@pytest.fixture
def begun_at_1(spark: SparkSession, tmp_path: Path) -> Play:
    """A row from before the start is deleted; then one just like it is inserted, which is an event like any other."""
    done = Play(spark, tmp_path, source={"start": {"version": 1}}, time={"allowed_lateness": "1h"})
    done.add("a@5").add("b@6").init().run()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    return done.runs("a@5")


TWIN = """
    u | start | end | count
    a | 5     | 5   | 1
    b | 6     | 6   | 1
    """


def test_an_event_like_a_deleted_one_from_before_the_start_is_accepted(begun_at_1: Play) -> None:
    begun_at_1.assert_sessions(TWIN)
    begun_at_1.assert_clean()


def test_a_backfill_keeps_an_event_like_a_deleted_one_from_before_the_start(begun_at_1: Play) -> None:
    begun_at_1.damage("UPDATE {} SET total = 9")
    begun_at_1.backfill(0, 10).assert_sessions(TWIN)

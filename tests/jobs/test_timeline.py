"""`sessions --plot`: the timeline of one key."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.queries.lookups import LookUp
from sessionizer.jobs.reporting.timeline import FIRST, LAST, Timeline, check_plot, draw, tellable, timeline
from sessionizer.lib.errors import UsageError
from tests.exactness.play import Play
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import Warehouse


def test_a_timeline_has_sessions_events_and_what_was_left_out(lake_to_see: Warehouse, tmp_path: Path) -> None:
    found = timeline(lake_to_see.config, LookUp(key=("ann",)))
    assert found.title == "ann: 1 session of 3 events"
    assert [row[:2] for row in found.sessions] == [(us(clock("10:00")), us(clock("10:30")))]
    assert sorted(found.events or []) == [us(clock(text)) for text in ("10:00", "10:20", "10:30")]  # 09:00 is far away
    assert found.rejected == []
    for kind in (".svg", ".png"):
        draw(found, tmp_path / f"ann{kind}")
    drawn = (tmp_path / "ann.svg").read_text()
    assert all(text in drawn for text in ("ann: 1 session of 3 events", "sessions", "events", "time, UTC", "final"))


def test_of_a_key_without_sessions_there_is_what_was_left_out(lake_to_see: Warehouse, tmp_path: Path) -> None:
    late = timeline(lake_to_see.config, LookUp(key=("ann",), latest_end=0))
    assert (late.sessions, late.rejected) == ([], [(us(clock("09:00")), "late")])
    draw(late, tmp_path / "late.svg")
    assert "left out" in (tmp_path / "late.svg").read_text()


def test_where_a_filter_tells_which_rows_are_events_there_is_no_row_of_them(lake_to_see: Warehouse) -> None:
    found = timeline(lake_to_see.configured(source={"where": "n <> 2"}), LookUp(key=("ann",)))
    assert (len(found.sessions), found.events) == (1, None)


def test_what_is_beyond_the_years_of_a_picture_is_left_out(tmp_path: Path) -> None:
    day, far = 86_400_000_000, 1_700_000_000_000_000_000  # the year 55840
    whole = Timeline("bob", [(0, day, "final", 2), (far, far, "open", 1)], [0, day, far], [(far, "late"), (1, "late")])
    found = tellable(whole)
    assert found == Timeline("bob", [(0, day, "final", 2)], [0, day], [(1, "late")])
    assert tellable(replace(whole, events=None)).events is None
    for first, last in ((FIRST, LAST), (FIRST, FIRST), (LAST, LAST), (0, LAST)):
        draw(tellable(Timeline("bob", [(first, last, "final", 2)], [first, last], [])), tmp_path / "bob.svg")


def test_what_cannot_be_drawn_is_told(lake_to_see: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is nothing to draw"):
        timeline(lake_to_see.config, LookUp(key=("nobody",)))
    with pytest.raises(UsageError, match="draws tables on a path"):
        timeline(lake_to_see.configured(sessions={"table": "gs://lake/sessions"}), LookUp(key=("ann",)))
    with pytest.raises(UsageError, match=r"must name a \.png"):
        check_plot(tmp_path / "ann.txt", LookUp(key=("ann",)))
    with pytest.raises(UsageError, match="draws one key"):
        check_plot(tmp_path / "ann.svg", LookUp(key_from=("ann",)))


@pytest.mark.broad
def test_what_waits_or_is_kept_apart_is_in_a_session_and_not_left_out(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, late_events="separate", corrections="quarantine").runs("tick@100 a@5=3 | a@95=2")
    done.source("DELETE FROM {} WHERE n = 3").run()
    done.assert_rejected("u | event_time | reason \n a | 5 | correction \n a | 95 | late")
    assert timeline(done.config, LookUp(key=("a",))).rejected == []

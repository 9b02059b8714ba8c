"""Gaps of events' own: a session may outlast those that begin after it."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.exactness.play import Play

pytestmark = pytest.mark.slow

OF_EVENTS: dict[str, Any] = {"gap": {"expr": "make_dt_interval(0, 0, g, 0)"}, "max_duration": "10m"}
TRACES = ("event_sessions", "session_updates")


@pytest.mark.parametrize(("late", "tick"), [("quarantine", 20), ("amend", 40)])
def test_a_final_session_amid_a_chain_stays_as_it_is(spark: SparkSession, tmp_path: Path, late: str, tick: int) -> None:
    outputs = {name: str(tmp_path / name) for name in TRACES}
    schema = "u STRING, at TIMESTAMP, n INT, g INT"
    done = Play(spark, tmp_path, schema, session=OF_EVENTS, late_events=late, outputs=outputs)
    # The first reaches 100, so that it is live when the second is final.
    done.runs(f"u | at | n | g \n a | 0 | 1 | 100 \n a | 11 | 1 | 1 \n tick | {tick} | 1 | 1")
    (final,) = done.tables.sessions.table.read().where("u = 'a' AND is_final").collect()
    done.runs("u | at | n | g \n a | 25 | 1 | 1")
    done.assert_sessions(
        f"""
        u | start | end | count | final
        a | 0     | 0   | 1     | no
        a | 11    | 11  | 1     | yes
        a | 25    | 25  | 1     | {"yes" if late == "amend" else "no"}
        """,
        u="a",
    )
    assert final in done.tables.sessions.table.read().collect()
    for place in outputs.values():
        done.assert_rows(done.told_of(place, "event_time", u="a"), "event_time \n 0 \n 11 \n 25")
    done.assert_clean()

"""An aggregate that is added or dropped in the config of a table that lives: the next run takes it up by itself."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.exactness.play import TOTAL, Play

Plays = Callable[..., Play]
LATE_TAKEN_IN = {"late_events": "amend", "time": {"allowed_lateness": "20m"}}
KINDS = {"name": "kinds", "fn": "count_distinct", "of": "n"}
MOST = {"name": "most", "fn": "max", "of": "n"}
WIDE: list[dict[str, Any]] = [
    KINDS,
    {"name": "doubled", "fn": "sum", "of": "n * 2L"},
    {"name": "first_n", "fn": "first", "of": "n"},
    {"name": "p50", "fn": "approx_percentile", "of": "n", "percentile": 0.5},
    {"name": "product", "fn": "custom", "of": "n", "initial": "1L", "update": "acc * value", "merge": "left * right"},
    {"name": "values", "fn": "list", "of": "n", "at_most": 2},
    {"name": "share", "sql": "total / doubled"},
]
OF_WIDE = (
    "u | start | end | count | total | kinds | doubled | first_n | p50 | product | values | values_truncated | share"
)


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """a's session at 0 is final; those of b and c are live: watermark 100, horizon 80."""
    return Play(spark, tmp_path_factory.mktemp("before"), **LATE_TAKEN_IN).runs("a@0=2 a@5=3 b@85=4 b@90=4 c@100=7")


def test_a_run_takes_new_aggregates_up_and_makes_live_sessions_again(before: Play, copied: Plays) -> None:
    play = copied(before, aggregates=[*TOTAL, *WIDE])
    version = play.tables.sessions.table.version
    (report,) = play.run()
    assert play.tables.sessions.table.version == version + 1
    assert report.manifest.sessions["updated"] == 2
    play.assert_sessions(
        f"""
        {OF_WIDE}
        a | 0  | 5   | 2 | 5 | - | -  | - | - | -  | -   | -  | -
        b | 85 | 90  | 2 | 8 | 1 | 16 | 4 | 4 | 16 | 4,4 | no | 0.5
        c | 100 | 100 | 1 | 7 | 1 | 14 | 7 | 7 | 7  | 7   | no | 0.5
        """
    )
    play.assert_clean()
    # The live sessions go on from what they remember now.
    play.runs("b@95=5 a@10=4").assert_sessions(
        f"""
        {OF_WIDE}
        a | 0  | 10  | 3 | 9  | 3 | 18 | 2 | 3 | 24 | 2,3 | yes | 0.5
        b | 85 | 100 | 3 | 13 | 2 | 26 | 4 | 4 | 80 | 4,4 | yes | 0.5
        c | 100 | 100 | 1 | 7 | 1 | 14 | 7 | 7 | 7  | 7   | no | 0.5
        """.replace("85 | 100", "85 | 95")
    )
    play.assert_clean()

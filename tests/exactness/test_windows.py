"""Sliding windows by the same promises as sessions."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lib.errors import ConfigError
from tests.exactness.play import Play

pytestmark = pytest.mark.slow


def sliding(folder: Path, **more: Any) -> dict[str, Any]:
    return {"table": str(folder / "windows"), "time_difference": "10m", "grace": "0s", "aggregates": []} | more


def test_an_aggregate_by_sql_may_name_the_columns_of_a_window(spark: SparkSession, tmp_path: Path) -> None:
    aggregates = [{"name": "is_left", "sql": "window_end = last_event_time"}]
    done = Play(spark, tmp_path, sliding=sliding(tmp_path, aggregates=aggregates)).add("a@500 a@505").init().slide()
    done.assert_rows(
        done.told_windows("window_end | event_count | is_left"),
        """
        window_end | event_count | is_left
        500        | 1           | yes
        505        | 2           | yes
        510+1000us | 1           | no
        """,
    )


def test_a_restore_of_the_windows_brings_back_what_later_runs_took_out_of_rejected_events(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, sliding=sliding(tmp_path)).add("tick@600").init().slide()
    done.add("a@500").slide()
    late = done.tables.windows.table.version
    done.source("DELETE FROM {} WHERE u = 'a'").slide()
    assert done.tables.rejected_window_events.table.read().count() == 0
    with done.tables.windows.table.lock():
        spark.sql(f"RESTORE delta.`{tmp_path / 'windows'}` TO VERSION AS OF {late}")
    done.slide(to_version=1)
    assert [row["reason"] for row in done.tables.rejected_window_events.table.read().collect()] == ["late"]
    done.slide()
    assert done.tables.rejected_window_events.table.read().count() == 0


@pytest.mark.parametrize(("before", "after"), [("table", ["u"]), (["u"], "table")])
def test_windows_keep_to_the_scopes_of_their_watermarks(
    spark: SparkSession, tmp_path: Path, before: object, after: object
) -> None:
    """In scopes of another kind the horizon would begin anew."""
    done = Play(spark, tmp_path, sliding=sliding(tmp_path), time={"watermark": {"per": before}})
    done.add("tick@600").init().slide().change(time={"watermark": {"per": after}})
    with pytest.raises(ConfigError, match="watermark_per: "):
        done.slide()


def test_scopes_remember_their_watermark_from_run_to_run(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, sliding=sliding(tmp_path), time={"watermark": {"per": ["u"]}})
    done.add("a@100 b@5").init().slide()
    for late in ("a@95", "a@96"):
        done.add(late).slide()
    rejected = done.told_of(str(tmp_path / "rejected_window_events"), "reason")
    assert [row["reason"] for row in rejected] == ["late"] * 2
    windows = [tuple(row.values()) for row in done.told_windows("u | window_end")]
    assert len(windows) == len(set(windows))

"""What `verify` and the look-ups see: sketches, numbers, times, sessions across the edges of what is asked."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.status import status
from sessionizer.jobs.queries.sql import query_frame
from sessionizer.jobs.queries.sql_duckdb import checked_query
from sessionizer.jobs.reporting.metrics import write_metrics
from sessionizer.lib.errors import UsageError
from tests.exactness.play import Play, minute

Plays = Callable[..., Play]


@pytest.mark.broad
def test_a_percentile_of_few_large_values_is_exact_for_verify_and_backfills(play: Plays) -> None:
    aggregates = [
        {"name": "middle", "fn": "approx_percentile", "of": "1.7e9 + n", "percentile": 0.5},
        {"name": "people", "fn": "approx_count_distinct", "of": "n"},
    ]
    done = play("a@0=1 a@1=2 a@2=3 tick@100", aggregates=aggregates)
    done.assert_clean()
    for damage in ("middle = 1.71e9", "people = 4"):
        done.damage(f"UPDATE {{}} SET {damage} WHERE u = 'a'")
        assert not done.verify().clean
        done.backfill(0, 20)
        assert (done.row("a")["middle"], done.row("a")["people"]) == (1.7e9 + 2, 3)
        done.assert_clean()


@pytest.mark.broad
def test_sketches_of_many_values_may_be_near(play: Plays) -> None:
    aggregates = [
        {"name": "middle", "fn": "approx_percentile", "of": "n", "percentile": 0.5},
        {"name": "people", "fn": "approx_count_distinct", "of": "n"},
    ]
    events = [" ".join(f"a@{n / 100}={n}" for n in range(i, 900, 3)) for i in range(3)]
    done = play(" | ".join(events), time={"allowed_lateness": "1h"}, aggregates=aggregates)
    done.assert_clean()
    done.source("DELETE FROM {} WHERE n = 7").run()
    done.assert_clean()
    done.damage("UPDATE {} SET people = people + 200")
    assert not done.verify().clean


@pytest.mark.broad
def test_numbers_of_updates_and_times_of_event_sessions_are_looked_at(
    spark: SparkSession, play: Plays, tmp_path: Path
) -> None:
    outputs = {name: str(tmp_path / name) for name in ("event_sessions", "session_updates")}
    done = play("a@0 a@5 tick@100", outputs=outputs)
    done.assert_clean()
    for table, damage in (
        ("session_updates", "n = n + 1, total = 0"),
        ("event_sessions", "event_time = event_time + INTERVAL 1 MINUTE"),
    ):
        before = spark.sql(f"DESCRIBE HISTORY delta.`{outputs[table]}`").first()
        assert before is not None
        done.damage(f"UPDATE {{}} SET {damage} WHERE u = 'a' AND event_time = TIMESTAMP '{minute(0)}'", table)
        if table == "session_updates":
            done.damage("UPDATE {} SET n = n + 1 WHERE u = 'a' AND n = 2", table)
        assert [name for name, number in done.verify().broken.items() if number], table
        spark.sql(f"RESTORE delta.`{outputs[table]}` TO VERSION AS OF {before['version']}")
        done.assert_clean()


@pytest.mark.broad
def test_a_row_is_missed_whose_events_lie_on_both_sides_of_what_is_asked(play: Plays) -> None:
    done = play("a@0 a@9 tick@100")
    done.damage("DELETE FROM {} WHERE u = 'a'")
    assert not done.verify(3, 5).clean
    assert done.verify(20, 30).clean


@pytest.mark.broad
def test_sessions_that_begin_at_one_time_are_numbered_as_they_end(play: Plays) -> None:
    users = " ".join(f"{name}@0=1 {name}@0=2 {name}@0.5=3" for name in "abcdefgh")
    done = play(users, session={"gap": "10m", "ends_when": "n = 1"}, source={"order_by": ["n"]})
    found = query_frame(done.spark, done.config, "SELECT * FROM numbered_sessions").where("session_number = 2")
    assert {row["previous_session_end"] <= row["session_start"] for row in found.collect()} == {True}
    assert found.count() == 8


@pytest.mark.broad
@pytest.mark.parametrize("view", ["numbered_sessions", "final_sessions", "session_changes"])
def test_a_view_does_not_call_two_columns_alike(play: Plays, view: str) -> None:
    own = {"numbered_sessions": "session_number", "final_sessions": "run_seq", "session_changes": "change"}
    done = play("a@0=7", aggregates=[{"name": name, "fn": "first", "of": "n"} for name in own.values()])
    query = f"SELECT {own[view]} FROM {view}"
    with pytest.raises(UsageError, match="adds a column of a name that the table has already"):
        query_frame(done.spark, done.config, query)
    if view != "session_changes":  # which Spark alone reads
        with pytest.raises(UsageError, match="adds a column of a name that the table has already"):
            checked_query(done.config, query)
    assert query_frame(done.spark, done.config, f"SELECT {own[view]} FROM sessions").first() == (7,)


@pytest.mark.broad
def test_metrics_of_a_key_with_any_name_are_written(play: Plays, tmp_path: Path) -> None:
    done = play("a@0=1", source={"key": ["u", {"name": "is_open", "expr": "n = 1"}]})
    write_metrics(done.kind, tmp_path / "told.prom", done.now)
    assert "sessionizer_idle_keys{" in (tmp_path / "told.prom").read_text()


@pytest.mark.broad
def test_expectations_of_values_do_not_stop_an_erasure(play: Plays, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    most = "{type: expect_column_max_to_be_between, kwargs: {column: total, max_value: 5}}"
    suite.write_text(f"expectations: [{most}]")
    done = play("a@0 b@50", expectations=str(suite)).source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    done.assert_sessions("u | start \n b | 50")


@pytest.mark.broad
def test_the_watermark_of_a_scope_is_known_by_a_decimal_and_a_time(spark: SparkSession, tmp_path: Path) -> None:
    schema = "u STRING, at TIMESTAMP, n INT, tier DECIMAL(10, 2), since TIMESTAMP"
    watermark = {"watermark": {"per": ["tier", "since"]}, "allowed_lateness": "0s"}
    done = Play(spark, tmp_path, schema, source={"key": ["u", "tier", "since"]}, time=watermark)
    done.append([("a", minute(0), 1, 1, minute(7))], "u STRING, at TIMESTAMP, n INT, tier INT, since TIMESTAMP")
    done.init().run()
    told = status(done.spark, done.config)
    assert told["oldest_open"]["watermark_behind_seconds"] is not None, told["oldest_open"]


@pytest.mark.broad
def test_final_sessions_that_keep_a_number_of_events_are_no_difference(play: Plays, tmp_path: Path) -> None:
    outputs = {name: str(tmp_path / name) for name in ("event_sessions", "session_updates")}
    time = {"allowed_lateness": "0s", "lateness": "session"}
    done = play("tick@110 a@85 a@93 a@95 | a@112 a@103 | a@88 a@92 a@94.5 | a@115=2", outputs=outputs, time=time)
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.assert_clean()


@pytest.mark.broad
def test_aggregates_are_taken_up_beside_final_sessions_that_stay(play: Plays) -> None:
    """The event at 95 that is the live session's own shares its minute with the last one of a final session."""
    freezes = {"time": {"lateness": "session", "allowed_lateness": "0s"}}
    done = play("tick@110 a@85 a@86 a@95 | a@95=3 a@104=4", **freezes)
    before = "u | start | end | count \n a | 85 | 95 | 3 \n a | 95 | 104 | 2"
    done.assert_sessions(before, u="a")
    least = {"name": "least", "fn": "min", "of": "n"}
    done.change(aggregates=[{"name": "total", "fn": "sum", "of": "n"}, least]).run()
    done.assert_sessions(before, u="a")
    done.assert_clean()

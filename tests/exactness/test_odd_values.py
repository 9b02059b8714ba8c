"""Values at the ends of their types, keys and times of odd kinds, results that no table holds."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.forget import forget
from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.jobs.reporting.run_output import show
from sessionizer.lib import columns as C
from sessionizer.lib.canonical import sorted_maps
from sessionizer.lib.durations import DAY
from sessionizer.lib.engine import plan_text
from sessionizer.lib.errors import (
    ConfigError,
    RunFailed,
    SourceMismatch,
)
from tests.exactness.play import TOTAL, Play, at, minute
from tests.exactness.several import CLICKS, Several
from tests.exactness.slides import Slides
from tests.machine.memory import in_memory

Plays = Callable[..., Play]
TYPES = ("MAP<BINARY, INT>", "MAP<STRUCT<x: INT, y: BINARY>, INT>", "ARRAY<MAP<ARRAY<DATE>, MAP<BINARY, INT>>>")
MAPS = (
    "map(X'00ff', 1, X'01', 2)",
    "map(named_struct('x', 1, 'y', X'01'), 1, named_struct('x', 0, 'y', X'02'), 2)",
    "array(map(array(DATE'2026-01-02'), map(X'01', 1)))",
)
THE_LAST = "INSERT INTO {} SELECT 'a', timestamp_micros(9223372036854775807), 1"
MEANS = [
    ("DECIMAL(23,2)", "0.004545"),
    ("DECIMAL(38,18)", "0.0045454545454545454545"),
    ("DECIMAL(11,2)", "818181818.195455"),
]


@pytest.mark.broad
def test_a_collated_text_is_refused_where_distinct_values_are_sketched(spark: SparkSession, tmp_path: Path) -> None:
    people = {"name": "people", "fn": "approx_count_distinct", "of": "collate(u, 'UTF8_LCASE')"}
    with pytest.raises(ConfigError, match=r"aggregates\.people: several values are equal by STRING COLLATE UTF8_LCASE"):
        Play(spark, tmp_path, aggregates=[people]).add("a@0").init()


@pytest.mark.broad
def test_a_map_is_the_same_by_the_table_and_by_its_changes(spark: SparkSession, tmp_path: Path) -> None:
    kinds = [{"name": f"kinds_{of}", "fn": "count_distinct", "of": f"to_json({of})"} for of in "ml"]
    nested = "ARRAY<STRUCT<m: MAP<STRING, INT>>>"
    done = Play(spark, tmp_path, f"u STRING, at TIMESTAMP, n INT, m MAP<STRING, INT>, l {nested}", aggregates=kinds)
    entries = "map('page', 1, 'ref', 2, 'lang', 3, 'os', 4, 'ua', 5, 'ip', 6)"
    done.source(f"CREATE TABLE {{}} (u STRING, at TIMESTAMP, n INT, m MAP<STRING, INT>, l {nested}) USING delta")
    for minutes in (0, 5, 7):
        done.source(
            f"INSERT INTO {{}} SELECT 'a', timestamp_micros({at(minutes)}), 1, {entries}, array(struct({entries}))"
        )
        (done.run if minutes else done.init().run)()
    done.assert_sessions("u | start | end | count | kinds_m | kinds_l \n a | 0 | 7 | 3 | 1 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_of_a_key_that_a_map_has_twice_the_last_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    first = [{"name": "first", "fn": "first", "of": "m['x']"}, {"name": "number", "fn": "max", "of": "size(m)"}]
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, m MAP<STRING, INT>", aggregates=first)
    done.source("CREATE TABLE {} (u STRING, at TIMESTAMP, n INT, m MAP<STRING, INT>) USING delta")
    twice = """from_json('{"x": 1, "y": 3, "x": 2}', 'MAP<STRING, INT>')"""
    for minutes in (0, 300, 5):
        done.source(f"INSERT INTO {{}} SELECT 'a', timestamp_micros({at(minutes)}), 1, {twice}")
        (done.run if minutes else done.init().run)()
    done.assert_sessions("u | start | count | first | number \n a | 0 | 1 | 2 | 2 \n a | 300 | 1 | 2 | 2")
    done.assert_clean()
    done.readmit().assert_rejected("u | reason")
    done.assert_sessions("u | start | count | first | number \n a | 0 | 2 | 2 | 2 \n a | 300 | 1 | 2 | 2")
    done.assert_clean()


def test_many_maps_in_a_struct_are_no_larger_a_plan(spark: SparkSession) -> None:
    kind = f"STRUCT<{', '.join(f'm{n}: MAP<STRING, STRING>' for n in range(20))}>"
    row = spark.sql(f'SELECT from_json(\'{{"m7": {{"b": 1, "a": 2}}}}\', \'{kind}\') AS p')
    assert len(plan_text(row.select(sorted_maps(F.col("p"), row.schema["p"].dataType)))) < 100_000


def test_parts_of_structs_with_maps_are_still_read_alone(spark: SparkSession, tmp_path: Path) -> None:
    kind = "STRUCT<who: STRING, `a.b`: STRUCT<props: MAP<STRING, INT>, k: INT>, pad: STRING>"
    spark.sql(f"CREATE TABLE delta.`{tmp_path}` (p {kind}) USING delta")
    rows = spark.read.format("delta").load(str(tmp_path))
    inner = "named_struct('props', map('b', 1, 'a', 2), 'k', 3)"
    spark.sql(f"INSERT INTO delta.`{tmp_path}` SELECT named_struct('who', 'ann', 'a.b', {inner}, 'pad', 'x')")
    told = rows.select(sorted_maps(F.col("p"), rows.schema["p"].dataType).alias("p"))
    read = str(told.select("p.who")._jdf.queryExecution().executedPlan().toString())
    assert "ReadSchema: struct<p:struct<who:string>>" in read
    (row,) = told.select(F.to_json("p")).collect()
    assert json.loads(row[0]) == {"who": "ann", "a.b": {"props": {"a": 2, "b": 1}, "k": 3}, "pad": "x"}
    assert row[0].index('"a":2') < row[0].index('"b":1')


@pytest.mark.broad
def test_what_is_encrypted_by_chance_is_no_key(spark: SparkSession, tmp_path: Path) -> None:
    key = "base64(aes_encrypt(u, '0000111122223333'{}))"
    by_ecb = key.format(", 'ECB'")
    with pytest.raises(ConfigError, match="must give the same value whenever it is computed"):
        Play(spark, tmp_path / "one", source={"key": [{"name": "who", "expr": key.format("")}]}).add("a@0").init()
    always = Play(spark, tmp_path / "two", source={"key": [{"name": "who", "expr": by_ecb}]})
    always.runs("a@0 a@5").assert_sessions("start | end | count \n 0 | 5 | 2")


@pytest.mark.broad
@pytest.mark.parametrize(("kind", "value"), list(zip(TYPES, MAPS, strict=True)))
def test_rejected_events_with_maps_by_odd_keys_are_known_again(play: Plays, kind: str, value: str) -> None:
    done = play("tick@100", f"u STRING, at TIMESTAMP, n INT, m {kind}", corrections="quarantine")
    for time in (5, 101):
        done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(time)}', 1, {value})").run()
    done.source("DELETE FROM {} WHERE u = 'a' AND at > TIMESTAMP'2026-01-01 01:00'").run()
    done.backfill(100, 200)
    done.assert_rejected("u | reason | kept \n a | correction | in \n a | late | out")
    done.assert_sessions("u | start \n a | 101 \n tick | 100")
    done.assert_clean()
    done.readmit().assert_sessions("u | start \n a | 5 \n tick | 100")
    done.assert_rejected("u | reason")
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("time", ["(CAST (at AS TIMESTAMP))", "try_to_timestamp(`at`)", "at :: timestamp"])
def test_a_time_of_day_is_no_event_time(spark: SparkSession, tmp_path: Path, time: str) -> None:
    done = Play(spark, tmp_path, "u STRING, at STRING, n INT", source={"event_time": time})
    done.append([("a", "08:15:00", 1), ("b", "2026-01-01", 1), ("c", "T8:15", 1)], done.schema)
    done.init().run()
    done.assert_sessions("u | start \n b | 0")
    done.assert_rejected("u | reason \n a | null_time \n c | null_time")
    done.assert_clean()


@pytest.mark.broad
def test_a_time_of_day_is_no_event_time_of_one_of_several_sources(spark: SparkSession, tmp_path: Path) -> None:
    with in_memory():
        calls = {"schema": "u STRING, t STRING, n INT", "key": ["u"], "event_time": "CAST(t AS TIMESTAMP)"}
        done = Several(spark, tmp_path, {"clicks": CLICKS, "calls": calls}, aggregates=[]).comes(clicks="a@0")
        told = [{"u": name, "t": text, "n": 1} for name, text in (("b", "2026-01-01 00:05:00"), ("c", "08:15:00"))]
        done.there["calls"] += told
        done._changed("calls", insert=told)
        done.runs()
        done.assert_sessions("u | start \n a | 0 \n b | 5")
        done.assert_rejected("u | reason \n c | null_time")


@pytest.mark.broad
def test_a_row_of_the_end_of_all_time_is_rejected_in_every_zone(spark: SparkSession, tmp_path: Path) -> None:
    session = {"gap": "10m", "cut_at": "midnight", "time_zone": "Europe/Berlin"}
    done = Play(
        spark,
        tmp_path,
        "u STRING, us BIGINT, n INT",
        session=session,
        source={"event_time": "timestamp_micros(us)"},
        time={"max_future_skew": "1d"},
    )
    done.append([("a", at(0), 1), ("b", 2**63 - 1, 1)], done.schema)
    done.init().run()
    done.assert_sessions("u | start | count \n a | 0 | 1")
    done.assert_rejected("u | reason \n b | in_the_future")
    done.assert_clean()


@pytest.mark.broad
def test_a_result_of_many_shapes_is_compared_by_what_it_says(play: Plays) -> None:
    parsed = {"name": "p", "sql": "parse_json(concat('{\"n\": ', total, '}'))"}
    done = play("a@0=1 a@5=2", aggregates=[*TOTAL, parsed])
    done.assert_clean()
    done.source("DELETE FROM {} WHERE n = 2").run()
    (found,) = done.tables.sessions.table.read().selectExpr("to_json(p)").collect()
    assert found[0] == '{"n":1}'
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize(
    ("sections", "says"),
    [
        (
            {"session": {"gap": "10m", "changes_of": ["at - TIMESTAMP '2026-01-01'"]}},
            "changes_of must name values that",
        ),
        (
            {"aggregates": [{"name": "entry", "fn": "first", "of": "collate(u, 'UTF8_LCASE')"}]},
            "aggregates.entry: several values are equal by STRING COLLATE UTF8_LCASE, and first would take any of them",
        ),
    ],
)
def test_values_that_no_table_holds_or_no_order_tells_apart_are_told_at_once(
    spark: SparkSession, tmp_path: Path, sections: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Play(spark, tmp_path, **sections).add("a@0").init()


@pytest.mark.broad
def test_a_time_may_be_a_text_of_any_collation(spark: SparkSession, tmp_path: Path) -> None:
    time = {"event_time": "collate(at, 'UNICODE_CI')"}
    done = Play(spark, tmp_path, "u STRING, at STRING, n INT", source=time)
    times = ("2026-01-01T02:00:00+02:00", "2026-01-01T00:05:00Z", "10:00")
    done.append([("a", text, 1) for text in times], done.schema)
    done.init().run()
    done.assert_sessions("u | start | end | count \n a | 0 | 5 | 2")
    done.assert_rejected("u | reason \n a | null_time")


@pytest.mark.slow
def test_an_event_of_the_last_microsecond_stops_no_dedupe(play: Plays) -> None:
    done = play("a@5 b@6", source={"dedupe": {"by": ["n"], "within": "1h"}})
    done.source(THE_LAST).run()
    done.runs("b@7=1").assert_sessions("u | start | end | count \n a | 5 | 5 | 1 \n b | 6 | 6 | 1")
    done.assert_rejected("u | reason \n a | in_the_future \n b | duplicate")


@pytest.mark.slow
def test_an_event_of_the_last_microsecond_stops_no_slide(spark: SparkSession, tmp_path: Path) -> None:
    done = Slides(spark, tmp_path).runs("a@5 b@6")
    done.source(THE_LAST).run()
    done.runs("a@7")
    (row,) = done.tables.rejected_window_events.table.read().select("u", C.REASON).collect()
    assert tuple(row) == ("a", "in_the_future")


@pytest.mark.broad
@pytest.mark.parametrize("far", [1_767_225_600_000, -90_000_000_000])
def test_an_event_beyond_the_years_of_python_is_named_where_it_must_not_be(
    spark: SparkSession, tmp_path: Path, far: int
) -> None:
    source = {"event_time": "timestamp_seconds(n)"}
    fails: Any = {"invalid_events": "fail", "late_events": "fail"}
    schema = "u STRING, at TIMESTAMP, n BIGINT"
    done = Play(spark, tmp_path, schema, source=source, **fails).runs("tick@0=1767225600")
    with pytest.raises(RunFailed, match=rf"the first: (in_the_future|late): .*{far}"):
        done.runs(f"a@5={far}")


@pytest.mark.broad
def test_a_note_on_what_failed_passes_values_that_python_cannot_hold(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    until = {"name": "until", "fn": "max", "of": "timestamp_seconds(n * 1000L)"}
    share = {"name": "share", "fn": "sum", "of": "1 div (n - 260000000)"}
    done = Play(spark, tmp_path, aggregates=[until, share]).add("a@5=260000000").init()
    show(done.kind, done.run())
    assert "aggregates.share.of" in capsys.readouterr().err


@pytest.mark.broad
def test_a_key_of_which_several_texts_are_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    key = [{"name": "who", "expr": "collate(u, 'UTF8_LCASE')"}]
    with pytest.raises(SourceMismatch, match=r"equal only where they are the same.*lower\("):
        Play(spark, tmp_path, source={"key": key}).runs("Ann@5 ann@6")


@pytest.mark.broad
def test_a_total_that_leaves_its_type_on_the_way_is_null_there(spark: SparkSession, tmp_path: Path) -> None:
    big, place = 2**62, str(tmp_path / "updates")
    total = [{"name": "total", "fn": "sum", "of": f"n * CAST({big} AS BIGINT)"}]
    done = Play(spark, tmp_path, aggregates=total, outputs={"session_updates": place})
    done.runs("a@0=1 | a@5=1 a@6=-1")
    done.assert_sessions(f"u | count | total \n a | 3 | {big}")
    told = spark.read.format("delta").load(place).select("n", "total").collect()
    assert sorted(map(tuple, told)) == [(1, big), (2, None), (3, big)]


@pytest.mark.broad
def test_running_aggregates_of_events_in_one_place_go_by_the_rows_themselves(
    spark: SparkSession, tmp_path: Path
) -> None:
    total, place = [{"name": "total", "fn": "sum", "of": "v"}], str(tmp_path / "updates")
    schema, by_n = "u STRING, at TIMESTAMP, n INT, v INT", {"order_by": ["n"]}
    done = Play(spark, tmp_path, schema, aggregates=total, source=by_n, outputs={"session_updates": place})
    done.runs("u | at | n | v \n a | 0 | 1 | 5 \n a | 0 | 1 | 3 \n a | 0 | 0 | 9")
    told = spark.read.format("delta").load(place).select("n", "total").collect()
    assert sorted(map(tuple, told)) == [(1, 9), (2, 12), (3, 17)]


@pytest.mark.broad
@pytest.mark.parametrize("name", ["mark", "candidate", "w", "f", "col", "starts"])
def test_keys_may_be_called_like_what_is_computed(play: Plays, name: str) -> None:
    per_key = {"watermark": {"per": "key"}, "idle_timeout": {"after": "1d", "clock": "processing_time"}}
    per = {"watermark": {"per": [name]}} if name in ("mark", "candidate") else per_key
    cuts = {"gap": "10m", "ends_when": "n = 9"} if name == "col" else {"gap": "10m", "max_duration": "12m"}
    schema, source = f"{name} STRING, at TIMESTAMP, n INT", {"key": [name]}
    rows = f"{name} | at | n \n a | 0 | 1 \n a | 8 | 1 \n a | 16 | 1"
    done = play(rows, schema=schema, source=source, time={"allowed_lateness": "1d", **per}, session=cuts)
    done.runs(f"{name} | at | n \n a | 20 | 1")
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("name", ["s", "e", "x"])
def test_keys_may_be_called_like_what_is_computed_where_sessions_are_forgotten(play: Plays, name: str) -> None:
    rows = f"{name} | at | n \n a | 0 | 1 \n a | 8 | 1 \n a | 3000 | 1"
    cuts = {"gap": "10m", "max_events": 10}
    done = play(rows, schema=f"{name} STRING, at TIMESTAMP, n INT", source={"key": [name]}, session=cuts)
    assert forget(done.kind, DAY, done.now, done.said.append) == 1
    done.assert_clean()


@pytest.mark.broad
def test_so_may_they_where_a_rebuild_of_windows_is_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    rows = "before | at | n \n a | 0 | 1 \n a | 100 | 1"
    done = Slides(spark, tmp_path, "before STRING, at TIMESTAMP, n INT", source={"key": ["before"]}).runs(rows)
    found = plan(done.kind, done.said.append, now=done.now)
    assert (found.days, found.stays) == ([], len(done.told("window_start")))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mean"), MEANS)
def test_a_mean_of_decimals_has_all_its_digits(spark: SparkSession, tmp_path: Path, kind: str, mean: str) -> None:
    means = [{"name": "m", "fn": "avg", "of": "v"}]
    done = Play(spark, tmp_path, f"u STRING, at TIMESTAMP, v {kind}", aggregates=means)
    most = "900000000.01" if "11" in kind else "0"
    for ids in ("0, 2", "2, 11"):
        values = f"'a' AS u, TIMESTAMP'{minute(1)}' AS at, CAST(IF(id = 0, 0.05, {most}) AS {kind}) AS v"
        done.append_frame(spark.sql(f"SELECT {values} FROM range({ids})"))
        if not done.tables.sessions.table.exists():
            done.init()
        done.run()
    assert str(done.row("a")["m"]) == mean
    done.assert_clean()

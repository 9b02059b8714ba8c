"""verify believes no table of ours: what was rejected is judged again, too, and every side table is made again."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.lib.admission import lateness
from tests.exactness.play import BY_N, BY_NAME, Play, minute

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
TRACES = ("event_sessions", "session_updates")


def traced(events: Play) -> Play:
    """With the side tables that trace events, in its own folder."""
    return events.change(outputs={name: str(events.folder / name) for name in TRACES})


@pytest.fixture(scope="module")
def rejecting(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """b's second event is a copy, c's is late; the last run has accepted a's second."""
    folder = tmp_path_factory.mktemp("rejecting")
    done = traced(Play(spark, folder, source={"dedupe": {"by": ["n"], "within": "1h"}}))
    return done.runs("tick@100=1 a@100=2 b@100=3 b@101=3 | a@101=4 c@5=5")


@pytest.fixture
def damaged(rejecting: Play, copied: Plays) -> Play:
    return traced(copied(rejecting))


def test_right_rejections_are_clean(rejecting: Play) -> None:
    rejecting.assert_rejected(
        """
        u | event_time | reason
        b | 101        | duplicate
        c | 5          | late
        """
    )
    rejecting.assert_clean()


SECOND = '{"at":"2026-01-01T01:41:00.000000Z","n":4,"u":"a"}'


def reject(of: Play, reason: str, event: str = SECOND) -> None:
    """a's second event, or another one of its time, gets a row in rejected_events, beside c's."""
    values = f"TIMESTAMP'2026-01-01 01:41:00', '{reason}', kept, watermark, horizon, '{event}', sha2('{event}', 256)"
    row = f"'a', {values}, ordinal, source_version, run_id, run_seq"
    of.damage(f"INSERT INTO {{}} SELECT {row} FROM {{}} WHERE reason = 'late'", "rejected_events")


@pytest.mark.parametrize("reason", ["late", "duplicate", "in_the_future"])
def test_an_event_that_was_rejected_without_cause_is_found(damaged: Play, reason: str) -> None:
    reject(damaged, reason)
    damaged.damage(
        "UPDATE {} SET session_end = session_start, event_count = 1, total = 2, duration_seconds = 0, "
        "expires_at = session_start + INTERVAL 10 MINUTES WHERE u = 'a'"
    )
    # The sessions are those of the events that are not rejected; but this one should not be.
    assert not damaged.verify().clean


LATE = "late events are older than the horizon of their run"
NO_CAUSE = "events are rejected for no reason that the config does not give"


def left_out(of: Play, user: str, reason: str = "late", run_seq: int = 1) -> dict[str, int]:
    """What verify finds once a user's only event is rejected, by a horizon of its own, and its session gone."""
    now = "TIMESTAMP'2026-01-02'"
    event = """to_json(struct(at, n, u), map('timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"))"""
    keys = [name for name in of.config.source.key if name != "u"]
    told = f"SELECT *, {event} AS e FROM delta.`{of.config.source.table}` WHERE u = '{user}'"
    values = f"at, '{reason}', 'out', {now}, {now}, e, sha2(e, 256), 1, 1, 'by hand', {run_seq}"
    of.damage(f"INSERT INTO {{}} SELECT {', '.join([*keys, 'u'])}, {values} FROM ({told})", "rejected_events")
    of.damage(f"DELETE FROM {{}} WHERE u = '{user}'")
    return found(of)


def found(of: Play) -> dict[str, int]:
    """The rules that rows break, and how many do."""
    return {name: number for name, number in of.verify().broken.items() if number}


def test_nothing_is_late_for_a_first_run_whatever_a_row_says(play: Plays) -> None:
    done = play("a@5 tick@100", source={"key": ["u"]})
    assert left_out(done, "a") == {LATE: 1}


def test_nothing_is_late_for_a_rebuild_whatever_a_row_says(play: Plays) -> None:
    done = play("tick@100 | a@5").rebuild()
    done.assert_clean()
    assert left_out(done, "a", run_seq=2) == {LATE: 1}


def test_what_is_late_is_older_than_the_horizon_of_its_tenant(spark: SparkSession, tmp_path: Path) -> None:
    of_tenants = {"watermark": {"per": ["n"]}, "allowed_lateness": "0s"}
    done = Play(spark, tmp_path, source={"key": ["n", "u"]}, time=of_tenants)
    done.add("tick@100=1 tock@9=2").init().run()
    done.add("a@10=2 b@5=2 c@5=3 d@10=1").run()
    done.assert_rejected("u | n | reason \n b | 2 | late \n d | 1 | late")
    done.assert_clean()
    assert left_out(done, "a", run_seq=2) == {LATE: 1}
    assert left_out(done, "c", run_seq=2) == {LATE: 2}  # of a tenant that had no watermark


@pytest.mark.parametrize("reason", ["duplicate", "before_start"])
def test_a_reason_that_the_config_cannot_give_is_found(play: Plays, reason: str) -> None:
    assert left_out(play("a@5 tick@100"), "a", reason) == {NO_CAUSE: 1}


@pytest.mark.parametrize("policy", ["amend", "separate"])
def test_a_late_event_is_found_that_the_policy_of_its_run_would_not_have_left_out(
    play: Plays, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    done = play("tick@100", late_events=policy)
    monkeypatch.setattr(lateness, "if_late", lambda _: "late")
    done.runs("a@5").assert_rejected("u | event_time | reason \n a | 5 | late")
    assert found(done) == {NO_CAUSE: 1}
    done.change(late_events="quarantine").runs("b@6").assert_rejected(
        "u | event_time | reason \n a | 5 | late \n b | 6 | late"
    )
    assert found(done) == {NO_CAUSE: 1}


@pytest.mark.parametrize("column", ["session_date", "duration_seconds"])
def test_what_follows_from_its_own_times_is_found_though_sessions_are_not_recomputed(play: Plays, column: str) -> None:
    done = play("tick@100 a@5", time={"lateness": "session"})
    done.assert_clean()
    done.damage(f"UPDATE {{}} SET {column} = {column} + 1 WHERE u = 'a'")
    assert found(done) == {"duration_seconds and session_date are those of the session's times": 1}


def test_one_is_found_that_is_apart_by_a_policy_that_has_none_apart(play: Plays) -> None:
    done = play("tick@100 | a@5")
    done.damage("UPDATE {} SET kept = 'apart'", "rejected_events")
    assert found(done)[NO_CAUSE] == 1


def test_nothing_is_late_for_a_key_that_had_no_horizon(play: Plays) -> None:
    by_key = {"watermark": {"per": "key"}, "idle_timeout": {"after": "30d", "clock": "processing_time"}}
    done = play("a@5 b@7", time=by_key)
    left_out(done, "a")
    done.damage("UPDATE {} SET watermark = NULL, horizon = NULL", "rejected_events")
    assert found(done) == {LATE: 1}


def test_a_row_is_missed_whose_gaps_reach_over_what_is_asked(play: Plays) -> None:
    done = play("a@0=300 a@200=1 tick@100=1", **BY_N)
    done.damage("DELETE FROM {} WHERE u = 'a'")
    assert not done.verify(120, 150).clean


def test_an_open_row_has_no_end_reason_not_even_a_flush(play: Plays) -> None:
    done = play("a@5 tick@7")
    done.damage("UPDATE {} SET end_reason = 'flush' WHERE u = 'a'")
    assert not done.verify().clean


def test_events_of_one_time_are_told_apart_where_their_order_is(spark: SparkSession, tmp_path: Path) -> None:
    done = traced(Play(spark, tmp_path, source={"order_by": ["n"]})).runs("a@5=1 a@5=2 tick@7")
    done.assert_clean()
    done.damage("UPDATE {} SET n = 1 WHERE u = 'a'", "event_sessions")
    assert not done.verify().clean


@pytest.mark.parametrize("name", ["event_hash", "session_start"])
def test_an_order_by_a_column_that_is_called_as_ours_is_clean(spark: SparkSession, tmp_path: Path, name: str) -> None:
    schema = f"u STRING, at TIMESTAMP, n INT, {name} STRING"
    done = traced(Play(spark, tmp_path, schema, source={"order_by": [name]}))
    done.runs(f"u | at | n | {name} \n a | 5 | 1 | x \n a | 5 | 1 | y").assert_clean()


@pytest.mark.parametrize("order_by", [["u"], ["event_time", "n"], ["w"]])
def test_an_order_by_the_key_the_time_or_a_struct_is_clean(
    spark: SparkSession, tmp_path: Path, order_by: list[str]
) -> None:
    schema = "u STRING, event_time TIMESTAMP, n INT, w STRUCT<a: INT>"
    done = traced(Play(spark, tmp_path, schema, source={"order_by": order_by, "event_time": "event_time"}))
    done.source(f"CREATE TABLE {{}} ({schema}) USING delta").source(BY_NAME)
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(5)}', 1, named_struct('a', 1))").init().run()
    done.source("ALTER TABLE {} ADD COLUMN w.z INT FIRST")
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(5)}', 2, named_struct('z', 2, 'a', 1))").run()
    done.assert_clean()


@pytest.mark.parametrize(("reason", "kept"), [("correction", "out"), ("ignored_delete", "in")])
def test_a_correction_that_no_run_was_to_leave_out_is_found(damaged: Play, reason: str, kept: str) -> None:
    event = SECOND.replace('"n":4', '"n":9') if kept == "in" else SECOND
    reject(damaged, reason, event)
    damaged.damage(f"UPDATE {{}} SET kept = '{kept}' WHERE reason = '{reason}'", "rejected_events")
    told = damaged.verify().broken
    assert told["corrections that were not made were not to be made by their run"] == 1


@pytest.fixture(scope="module")
def invalid(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    return Play(spark, tmp_path_factory.mktemp("invalid")).runs(
        """
        u | at | n
        a | 5  | 1
        - | 7  | 1
        a | -  | 1
        """
    )


@pytest.mark.parametrize("which", ["reason = 'null_key'", "true"], ids=["one", "all"])
def test_an_invalid_event_that_rejected_events_lacks_is_found(invalid: Play, copied: Plays, which: str) -> None:
    invalid.assert_rejected("u | event_time | reason \n - | 7 | null_key \n a | - | null_time")
    invalid.assert_clean()
    done = copied(invalid)
    done.damage(f"DELETE FROM {{}} WHERE {which}", "rejected_events")
    assert done.verify().broken["what is invalid is in rejected_events"] == 1


def test_an_event_that_is_told_to_be_in_another_session_of_its_key_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A session of late events apart lies beside one that was final."""
    done = traced(Play(spark, tmp_path, late_events="separate")).runs("a@5 a@10 a@14 tick@100 | a@6 a@11 a@13")
    done.assert_clean()
    of_a = done.tables.sessions.table.read().where("u = 'a'").orderBy("is_late").collect()
    ids = [row["session_id"] for row in of_a]
    swapped = f"CASE session_id WHEN '{ids[0]}' THEN '{ids[1]}' ELSE '{ids[0]}' END"
    times = ", ".join(f"TIMESTAMP'2026-01-01 00:{minute}:00'" for minute in (10, 11))
    done.damage(f"UPDATE {{}} SET session_id = {swapped} WHERE event_time IN ({times})", "event_sessions")
    assert done.verify().broken["event_sessions has the accepted events, and no others"] == 4


@pytest.mark.parametrize("reason", ["null_key", "null_time", "non_positive_gap"])
def test_a_valid_event_that_is_told_to_be_invalid_is_found(damaged: Play, reason: str) -> None:
    reject(damaged, reason)
    assert not damaged.verify().clean


def test_a_rejected_event_that_the_source_does_not_have_is_found(damaged: Play) -> None:
    reject(damaged, "before_start", "{}")
    found = damaged.verify()
    assert {rule for rule, rows in found.broken.items() if rows} == {"what is rejected is in the source", NO_CAUSE}


def test_an_accepted_event_that_is_a_copy_is_found(damaged: Play) -> None:
    damaged.damage("DELETE FROM {} WHERE reason = 'duplicate'", "rejected_events")
    damaged.damage(
        "UPDATE {} SET session_end = session_end + INTERVAL 1 MINUTE, event_count = 2, total = 6, "
        "duration_seconds = 60, expires_at = expires_at + INTERVAL 1 MINUTE WHERE u = 'b'"
    )
    assert not damaged.verify().clean


def test_an_accepted_copy_is_found_where_nothing_is_rejected(play: Plays) -> None:
    done = play("a@5=3 a@6=3 tick@100", source={"dedupe": {"by": ["n"], "within": "1h"}})
    done.damage("DELETE FROM {}", "rejected_events")
    done.backfill(0, 60)
    done.assert_sessions("u | start | count \n a | 5 | 2 \n tick | 100 | 1")
    assert {name: rows for name, rows in done.verify().broken.items() if rows} == {
        "no accepted event is a copy of another": 1
    }


@pytest.mark.parametrize(
    ("place", "statement"),
    [
        ("event_sessions", "DELETE FROM {} WHERE u = 'a'"),
        ("event_sessions", "UPDATE {} SET session_id = 'x' WHERE u = 'a'"),
        ("event_sessions", "UPDATE {} SET event_hash = 'x' WHERE u = 'a'"),
        ("session_updates", "DELETE FROM {} WHERE u = 'a'"),
        ("session_updates", "UPDATE {} SET total = total + 1 WHERE u = 'a'"),
    ],
)
def test_a_wrong_side_table_is_found(damaged: Play, place: str, statement: str) -> None:
    damaged.damage(statement, place)
    assert not damaged.verify().clean


@pytest.mark.parametrize("statement", ["DELETE FROM {} WHERE is_late", "UPDATE {} SET total = total + 1 WHERE is_late"])
def test_a_wrong_session_of_late_events_is_found(apart: Play, copied: Plays, statement: str) -> None:
    done = copied(apart)
    done.damage(statement)
    assert not done.verify().clean


def test_a_wrong_session_of_late_events_is_found_where_places_are_judged(play: Plays) -> None:
    done = play("tick@100 | a@5 a@6", late_events="separate", time={"lateness": "session"})
    done.assert_clean()
    done.damage("UPDATE {} SET total = total + 1 WHERE is_late")
    assert not done.verify().clean


def test_a_flush_that_never_was_is_found(play: Plays) -> None:
    done = play("tick@100 a@5 | b@101")
    done.damage("UPDATE {} SET end_reason = 'flush' WHERE u = 'a'")
    assert not done.verify().clean


def test_a_wrong_end_of_its_reach_is_found_where_no_session_is_recomputed(play: Plays) -> None:
    done = play("tick@100 | a@98", time={"lateness": "session"})
    done.assert_clean()
    done.damage("UPDATE {} SET expires_at = expires_at - INTERVAL 1 SECOND WHERE u = 'a'")
    assert done.verify().broken["a session expires a gap behind its end"] == 1


def test_a_live_session_that_the_watermark_of_its_key_has_passed_is_found(play: Plays) -> None:
    by_key = {"watermark": {"per": "key"}, "idle_timeout": {"after": "30d", "clock": "processing_time"}}
    done = play("a@5 a@50", time=by_key | {"allowed_lateness": "1h"})
    done.assert_clean()
    done.damage("UPDATE {} SET status = 'open', end_reason = NULL WHERE status = 'closed'")
    assert not done.verify().clean


@pytest.fixture(scope="module")
def apart(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    done = Play(spark, tmp_path_factory.mktemp("apart"), late_events="separate").runs("tick@100 | a@5 a@6")
    done.assert_clean()
    return done


def test_a_wrong_percentile_is_found(play: Plays) -> None:
    p50 = {"name": "p50", "fn": "approx_percentile", "of": "n", "percentile": 0.5}
    done = play("a@5=5", aggregates=[p50])
    done.damage("UPDATE {} SET p50 = 500")
    assert not done.verify().clean


# False alarms


def test_aggregates_of_every_kind_and_what_live_rows_remember_of_them_are_clean(play: Plays) -> None:
    values = {"v": "v", "k": "k", "d": "CAST(k AS DECIMAL(10,2)) * 1.1"}
    plain = ("count", "sum", "min", "max", "avg", "stddev", "first", "last", "count_distinct", "set", "list")
    percentiles = (0, 7, 50, 100)
    aggregates = [
        *({"name": f"{fn}_{of}", "fn": fn, "of": values[of]} for of in values for fn in plain),
        *({"name": f"few_{fn}", "fn": fn, "of": "k", "at_most": 2} for fn in ("set", "list")),
        *({"name": f"known_{fn}", "fn": fn, "of": "v", "ignore_nulls": True} for fn in ("first", "last")),
        *({"name": fn, "fn": fn, "of": "k > 2"} for fn in ("bool_or", "bool_and")),
        *({"name": f"about_{of}", "fn": "approx_count_distinct", "of": of} for of in ("v", "k")),
        *(
            {"name": f"p{p}_{of}", "fn": "approx_percentile", "of": of, "percentile": p / 100}
            for p in percentiles
            for of in ("v", "k")
        ),
        {"name": "twice", "sql": "sum_k * 2"},
        {
            **{"name": "own", "fn": "custom", "of": "k", "ignore_nulls": True, "initial": "0D"},
            **{"update": "acc + value", "merge": "left + right", "finish": "acc / 2"},
        },
    ]
    done = play(
        """
        u | at | v    | k
        a | 0  | NaN  | 1
        a | 1  | 0.1  | -
        a | 12 | inf  | 3
        b | 3  | -0.0 | -
        b | 4  | 0.0  | -
        c | 0  | 1e9  | 7
        """,
        "u STRING, at TIMESTAMP, v DOUBLE, k BIGINT",
        time={"allowed_lateness": "1d"},
        aggregates=aggregates,
    )
    done.runs("u | at | v | k \n a | 5 | - | 2 \n c | 4 | -1e9 | 7")
    done.runs("u | at | v | k \n a | 3 | 0.2 | 5 \n c | 9 | 0.3 | 9 \n b | 9 | - | -")
    done.assert_clean()


def test_a_table_with_invalid_events_is_clean(play: Plays) -> None:
    gap = {"expr": "make_dt_interval(0, 0, n, 0)"}
    done = play(
        """
        u | at | n
        - | 5  | 1
        a | -  | 1
        a | 5  | 0
        a | 6  | 5
        a | 6  | 0
        """,
        session={"gap": gap},
    )
    assert len(done.told_rejected("reason")) == 4
    done.assert_clean()


def test_a_shorter_lateness_makes_nothing_final_before_the_next_run(play: Plays) -> None:
    done = play("a@0 tick@100", time={"allowed_lateness": "5h"})
    done.change(time={"allowed_lateness": "0s"}).assert_clean()
    done.run()
    done.assert_clean()


def test_a_flushed_table_is_clean(play: Plays) -> None:
    play("a@5 b@30 | tick@40").flush().assert_clean()


def test_a_part_of_a_table_with_chains_is_clean(play: Plays) -> None:
    # In each chain three events make a session. Those of a around minute 33 begin at 15, amid one of b.
    done = play(
        " ".join([*[f"a@{m}" for m in range(0, 61, 5)], *[f"b@{m}" for m in range(7, 63, 5)]]),
        session={"gap": "10m", "max_duration": "12m"},
    )
    done.assert_clean()
    part = done.verify(33, 45)
    assert part.clean, part


@pytest.mark.parametrize("sample", [0.5, 0.965])
def test_a_sample_of_keys_with_both_zeros_is_clean(zeros: Play, sample: float) -> None:
    found = zeros.verify(sample=sample)
    assert found.clean, found


@pytest.fixture(scope="module")
def zeros(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """0.0 and -0.0 are one key."""
    done = Play(spark, tmp_path_factory.mktemp("zeros"), "u DOUBLE, at TIMESTAMP, n INT")
    done.runs(
        """
        u    | at | n
        -0.0 | 5  | 1
        0.0  | 6  | 1
        -0.0 | 60 | 1
        0.0  | 90 | 1
        """
    )
    done.assert_sessions("start | count \n 5 | 2 \n 60 | 1 \n 90 | 1")
    return done


REALS = "u STRING, at TIMESTAMP, v DOUBLE"


def test_custom_accumulators_that_are_null_or_arrays_of_floats_or_structs_are_clean(play: Plays) -> None:
    of = {"fn": "custom", "of": "v"}
    null = {"name": "energy", "initial": "0D", "update": "acc + value", "merge": "left + right", "finish": "sqrt(acc)"}
    many = {"name": "many", "initial": "array(0D)", "update": "array(acc[0] + coalesce(value, 0D))"}
    many |= {"merge": "array(left[0] + right[0])"}
    odd = {"name": "odd", "initial": "named_struct('max-v', 0D)", "finish": "acc.`max-v`"}
    odd |= {"update": "named_struct('max-v', greatest(acc.`max-v`, value))"}
    odd |= {"merge": "named_struct('max-v', greatest(left.`max-v`, right.`max-v`))"}
    done = play(
        "u | at | v \n a | 9 | 0.1 \n a | 11 | 0.2 \n a | 12 | 0.3 \n a | 13 | -",
        REALS,
        time={"allowed_lateness": "1d"},
        aggregates=[of | null, of | many, of | odd],
    )
    done.assert_clean()
    done.flush().assert_clean()


def test_floats_that_were_added_in_another_order_are_clean(play: Plays) -> None:
    added = {
        "name": "added",
        "fn": "custom",
        "of": "IF(u = 'c', v, 0D)",
        "initial": "0D",
        "update": "acc + value",
        "merge": "left + right",
    }
    sums = [{"name": fn, "fn": fn, "of": "v"} for fn in ("sum", "avg", "stddev")]
    done = play(
        "u | at | v \n a | 9 | 0.2 \n c | 0 | 0.3", REALS, time={"allowed_lateness": "1d"}, aggregates=[*sums, added]
    )
    # Those of a cancel out; the last of c comes amid the others.
    done.runs("u | at | v \n a | 11 | -0.3 \n c | 8 | 0.1").runs("u | at | v \n a | 1 | 0.1 \n c | 4 | 0.2")
    done.assert_clean()


def test_a_stddev_of_equal_floats_is_clean(play: Plays) -> None:
    aggregates = [{"name": name, "fn": name, "of": "v"} for name in ("sum", "avg", "stddev")]
    done = play(
        "u | at | v \n b | 0 | 0.1 \n b | 1 | 0.1 \n b | 2 | 0.1",
        REALS,
        aggregates=aggregates,
        time={"allowed_lateness": "1d"},
    )
    done.runs("u | at | v \n b | 3 | 0.1")
    done.assert_clean()


def test_a_wrong_stddev_of_large_values_is_found(play: Plays) -> None:
    aggregates = [{"name": "stddev", "fn": "stddev", "of": "v + 1.7e12"}]
    done = play("u | at | v \n a | 0 | 1 \n a | 1 | 2", REALS, aggregates=aggregates)
    done.assert_clean()
    done.damage("UPDATE {} SET stddev = stddev + 1")
    assert not done.verify().clean


def test_a_session_that_idles_before_its_longest_duration_is_clean(play: Plays) -> None:
    session, idle = {"gap": "10m", "max_duration": "12m"}, {"after": "30m", "clock": "processing_time"}
    done = play("a@0 a@5", now=5, session=session, time={"idle_timeout": idle})
    done.at(36).run()
    done.assert_sessions("u | start | end | status | why \n a | 0 | 5 | closed | max_duration")
    done.assert_clean()


def test_a_late_event_apart_that_is_gone_from_the_source_stays_where_it_was(play: Callable[..., Play]) -> None:
    done = play("tick@100 | a@5=3", late_events="separate", corrections="quarantine")
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_clean()


def test_sql_is_judged_by_the_row_that_it_stands_in(play: Callable[..., Play]) -> None:
    mean = {"name": "mean", "fn": "avg", "of": "CAST(n AS DECIMAL(10,2))"}  # 3.333333 in the table
    done = play("a@0=1 a@1=1 a@2=8", aggregates=[mean, {"name": "thrice", "sql": "mean * 3"}])
    done.assert_clean()
    done.damage("UPDATE {} SET thrice = 10")
    assert [row["columns"] for row in done.verify().wrong] == [["thrice"]]


def test_a_look_back_after_less_lateness_leaves_rows_as_they_are(play: Callable[..., Play]) -> None:
    done = play("a@35 tick@100", time={"allowed_lateness": "60m"})
    done.change(time={"allowed_lateness": "0s"}).backfill(0, 10)
    done.assert_clean()


@pytest.mark.parametrize("name", TRACES)
def test_rows_that_an_optional_table_lacks_are_missed_however_old_it_is(damaged: Play, name: str) -> None:
    table = damaged.tables.event_outputs[name].table
    table.checkpoint()
    (damaged.folder / name / "_delta_log" / f"{0:020d}.json").unlink()
    damaged.assert_clean()
    damaged.damage("DELETE FROM {} WHERE event_time = TIMESTAMP'2026-01-01 01:41:00'", name)
    assert not damaged.verify().clean

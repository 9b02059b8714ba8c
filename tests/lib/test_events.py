"""Which events are accepted, which are rejected and why."""

import hashlib
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.canonical import canonical_json, session_id
from sessionizer.lib.config import Dedupe, MadeKey
from sessionizer.lib.errors import ConfigError, SourceError
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from tests.frames import corrected, judge, rejected

NOON = int(datetime(2024, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
HOUR = 3600 * 1_000_000


def verdicts(frame: DataFrame, rule: Rule, clock: WatermarkState) -> list[str | None]:
    return [row[0] for row in judge(frame, rule, clock).orderBy("n").select(C.VERDICT).collect()]


def frame(spark: SparkSession, rows: list[tuple[Any, ...]], schema: str) -> DataFrame:
    return spark.createDataFrame([(n, *row) for n, row in enumerate(rows)], f"n INT, {schema}")


def test_the_first_reason_counts(spark: SparkSession) -> None:
    rule = Rule(key=("u",), gap=HOUR, event_time="timestamp_micros(t)", allowed_lateness=HOUR, max_future_skew=HOUR)
    clock = WatermarkState(now=NOON, watermark=NOON)
    rows = [
        ("delete", None, None, "forgotten"),
        ("update_preimage", "u", NOON, "withdrawn"),
        ("update_postimage", None, NOON, "null_key"),
        ("update_postimage", "u", 1 - 2**62, "corrected"),
        ("insert", None, None, "null_time"),
        ("insert", None, NOON + 2 * HOUR, "null_key"),
        ("insert", "u", NOON + HOUR + 1, "in_the_future"),
        ("insert", "u", NOON + HOUR, None),
        ("insert", "u", NOON - HOUR, None),
        ("insert", "u", NOON - HOUR - 1, "late"),
        ("insert", "u", 1 - 2**62, "late"),
        ("insert", "u", -(2**62), "null_time"),
        ("insert", "u", 2**62, "in_the_future"),
    ]
    found = verdicts(frame(spark, rows, "_change_type STRING, u STRING, t BIGINT, w STRING"), rule, clock)
    assert found == [row[-1] for row in rows]


@pytest.mark.parametrize("kind", ["MAP<STRING, INT>", "ARRAY<STRUCT<a: MAP<INT, INT>>>"])
def test_what_orders_events_and_tells_copies_can_be_compared(spark: SparkSession, kind: str) -> None:
    events = spark.createDataFrame([], f"u STRING, event_time TIMESTAMP, m {kind}")
    dedupe = Dedupe(by=("m",), within="1h")  # type: ignore[arg-type]
    for rule in (Rule(("u",), HOUR, order_by=("m",)), Rule(("u",), HOUR, dedupe=dedupe)):
        with pytest.raises(SourceError, match=r"whose values can be compared, and this is .*MAP"):
            judge(events, rule, WatermarkState(now=NOON))


def test_corrections_can_be_rejected_instead(spark: SparkSession) -> None:
    rows: list[tuple[Any, ...]] = [
        ("delete", 1, "correction"),
        ("update_preimage", 2, "correction"),
        ("update_postimage", 3, "correction"),
    ]
    rows += [
        ("insert", 1, "correction"),
        ("insert", 9, None),
        ("insert", None, "null_time"),
        ("delete", None, "forgotten"),
    ]
    events = frame(spark, rows, "_change_type STRING, t BIGINT, w STRING")
    for policy in ("quarantine", "fail"):
        rule = Rule(key=(), gap=HOUR, event_time="timestamp_micros(t)", corrections=policy)
        judged = corrected(events, rule, WatermarkState(now=NOON))
        assert [row[0] for row in judged.orderBy("n").select(C.VERDICT).collect()] == [row[-1] for row in rows]


def test_text_is_a_time_only_with_a_full_date(spark: SparkSession) -> None:
    texts = {
        "2024-01-01T10:00:00+02:00": 8,
        "2024-01-01 10:00:00": 10,
        " 2024-01-01 10:00 ": 10,
        "2024-01-01": 0,
        "12:00": None,
        "2024": None,
        "now": None,
        "2024-13-01": None,
        "rubbish": None,
        "": None,
    }
    events = frame(spark, [(text,) for text in texts], "event_time STRING")
    judged = judge(events, Rule(key=(), gap=HOUR), WatermarkState(now=NOON)).orderBy("n").collect()
    midnight = NOON - 12 * HOUR
    assert [row[C.US] for row in judged] == [None if h is None else midnight + h * HOUR for h in texts.values()]
    assert [row[C.VERDICT] for row in judged] == ["null_time" if h is None else None for h in texts.values()]


def test_a_time_without_a_zone_is_utc(spark: SparkSession) -> None:
    events = spark.sql("SELECT 0 AS n, TIMESTAMP_NTZ '2024-01-01 12:00:00' AS event_time")
    assert judge(events, Rule(key=(), gap=HOUR), WatermarkState(now=NOON)).collect()[0][C.US] == NOON


@pytest.mark.parametrize(
    ("rule", "error", "says"),
    [
        (Rule(key=(), gap=1, event_time="t"), SourceError, "timestamp_millis"),
        (Rule(key=("gone",), gap=1), SourceError, "source.key names a column that the source table does not have"),
        (Rule(key=("tags",), gap=1), SourceError, "must hold single values, and this one is ARRAY<STRING>"),
        (Rule(key=(), gap=1, event_time="gone"), SourceError, "source.event_time"),
        (Rule(key=(), gap=1, event_time="x y z"), ConfigError, "neither a column nor an SQL expression"),
        (Rule(key=(), gap=1, where="gone > 1"), SourceError, "source.where"),
        (Rule(key=(), gap=1, where="rand() < 0.5"), ConfigError, "must give the same value whenever it is computed"),
        (Rule(key=(), gap=1, order_by=("gone",)), SourceError, "source.order_by"),
    ],
)
def test_what_cannot_serve_is_named(spark: SparkSession, rule: Rule, error: type[Exception], says: str) -> None:
    events = spark.createDataFrame([], "t BIGINT, event_time TIMESTAMP, tags ARRAY<STRING>")
    with pytest.raises(error) as caught:
        judge(events, rule, WatermarkState(now=0))
    assert says in str(caught.value)


def test_a_session_zone_other_than_utc_is_refused(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    with pytest.raises(ConfigError, match="time zone of the Spark session must be UTC: got 'Europe/Berlin'"):
        judge(other.sql("SELECT '2024-01-01' AS event_time"), Rule(key=(), gap=1), WatermarkState(now=0))


def test_where_leaves_out_what_is_not_true_and_null_is_not(spark: SparkSession) -> None:
    events = frame(spark, [("ping",), ("click",), (None,)], "kind STRING").withColumn("event_time", F.lit("2024-01-01"))
    judged = judge(events, Rule(key=(), gap=1, where="kind <> 'ping'"), WatermarkState(now=NOON))
    assert [row["kind"] for row in judged.collect()] == ["click"]


def test_null_keys_are_rejected_or_a_group(spark: SparkSession) -> None:
    events = frame(spark, [(None, 1), ("u", None), ("u", 1)], "a STRING, `b c` INT").withColumn(
        "event_time", F.lit("2024-01-01")
    )
    reject, group = (Rule(key=("a", "b c"), gap=1, null_keys=n) for n in ("reject", "group"))
    assert verdicts(events, reject, WatermarkState(now=NOON)) == ["null_key", "null_key", None]
    assert verdicts(events, group, WatermarkState(now=NOON)) == [None, None, None]


def test_a_rejected_row_is_kept_whole_and_identical_ones_are_numbered(spark: SparkSession) -> None:
    events = spark.sql(
        "SELECT * FROM VALUES (1, map('b', 1, 'a', null), X'00ff', 1.5D, named_struct('m', map(2, 'y', 1, 'x'))),"
        " (1, map('a', null, 'b', 1), X'00ff', 1.5D, named_struct('m', map(1, 'x', 2, 'y')))"
        " AS t(`odd.name`, m, bytes, x, s)"
    ).withColumn("event_time", F.lit(None).cast("timestamp"))
    rule = Rule(key=("odd.name",), gap=1, allowed_lateness=5)
    rows = rejected(judge(events, rule, WatermarkState(now=NOON, watermark=5)), rule).collect()
    text = '{"bytes":"AP8=","m":{"a":null,"b":1},"odd.name":1,"s":{"m":{"1":"x","2":"y"}},"x":1.5}'
    assert [row[C.EVENT] for row in rows] == [text, text]
    assert len({row[C.EVENT_HASH] for row in rows}) == 1
    assert sorted(row[C.ORDINAL] for row in rows) == [1, 2]
    assert {row[C.REASON] for row in rows} == {"null_time"}
    assert rows[0][C.HORIZON] == datetime(1970, 1, 1)


def test_canonical_json_is_by_name_and_survives_a_new_column(spark: SparkSession) -> None:
    """A null says nothing: a column that the source gains later leaves the hashes of older rows as they are."""
    events = spark.sql(
        "SELECT TIMESTAMP '2024-01-01 00:00:00.000001Z' AS t, DATE '0001-01-01' AS d, "
        "CAST(NULL AS INT) AS n, '🙂\"' AS s"
    )
    text = events.select(canonical_json(events.schema)).collect()[0][0]
    assert text == '{"d":"0001-01-01","s":"🙂\\"","t":"2024-01-01T00:00:00.000001Z"}'


def test_ids_never_change(spark: SparkSession) -> None:
    """These are in users' tables: whatever changes here breaks every join to them."""
    texts = {
        (): "@-1",
        ("alice",): "s5:alice@-1",
        ("🙂", 7): "s4:🙂i1:7@-1",
        (None,): "n@-1",
        ("", None): "s0:n@-1",
        (7,): "i1:7@-1",
        (1.0,): "f3:1.0@-1",
        (True, date(2024, 1, 1)): "b4:trueD10:2024-01-01@-1",
    }
    found = {key: _id_of(spark, key) for key in texts}
    assert found == {key: hashlib.sha256(text.encode()).hexdigest()[:32] for key, text in texts.items()}
    assert found["alice",] == "0b6e90670012f5f8cbd771e165ecef75"


def test_negative_zero_and_a_wider_integer_keep_the_id(spark: SparkSession) -> None:
    ids = spark.range(1).select(
        session_id([F.lit(-0.0)], [T.DoubleType()], F.lit(1)),
        session_id([F.lit(0.0)], [T.DoubleType()], F.lit(1)),
        session_id([F.lit(7).cast("int")], [T.IntegerType()], F.lit(1)),
        session_id([F.lit(7).cast("bigint")], [T.LongType()], F.lit(1)),
    )
    zero, plus_zero, narrow, wide = ids.collect()[0]
    assert zero == plus_zero
    assert narrow == wide


def _id_of(spark: SparkSession, key: tuple[Any, ...]) -> str:
    types = {str: T.StringType(), int: T.LongType(), float: T.DoubleType(), bool: T.BooleanType(), date: T.DateType()}
    data_types: list[T.DataType] = [types.get(type(k), T.StringType()) for k in key]
    columns = [F.lit(k).cast(t) for k, t in zip(key, data_types, strict=True)]
    return str(spark.range(1).select(session_id(columns, data_types, F.lit(-1).cast("bigint"))).collect()[0][0])


OF_KEYS = "u STRING, user STRUCT<id: STRING, ref: STRUCT<n: INT>>, m MAP<STRING, STRING>, event_time TIMESTAMP"


def of_made(spark: SparkSession, name: str, expr: str) -> T.DataType:
    """The type of a key column that SQL makes."""
    events = spark.createDataFrame([], OF_KEYS)
    rule = Rule((name,), HOUR, made=(MadeKey(name=name, expr=expr),))
    return judge(events, rule, WatermarkState(now=NOON)).schema[name].dataType


@pytest.mark.parametrize(
    ("expr", "kind"),
    [
        ("u", "string"),
        ("USER.Id", "string"),
        ("`user`.`ref`.n", "int"),
        ("m.a", "string"),
        ("length(u) + user.ref.n", "int"),
        ("CAST(event_time AS DATE)", "date"),
    ],
)
def test_a_key_may_be_made_of_what_an_event_has(spark: SparkSession, expr: str, kind: str) -> None:
    assert of_made(spark, "who", expr).simpleString() == kind


@pytest.mark.parametrize(
    ("name", "expr", "says"),
    [
        ("U", "user.id", "source.key gives a column a name that the source table has already: got 'U'. give it anoth"),
        ("id", "user.idd", "source.key names a field that the source table does not have: got 'user.idd'. did you me"),
        ("x", "usr.id", "source.key names a field that the source table does not have: got 'usr.id'"),
        ("who", "v", "source.key.who does not fit the source table: got 'v'"),
        ("who", "lower(v)", "source.key.who does not fit the source table: got 'lower"),
        ("who", "lower(", "source.key.who is neither a column nor an SQL expression"),
        ("who", "user", "a key column must hold single values, and this one is STRUCT"),
        ("who", "map_keys(m)", "a key column must hold single values, and this one is ARRAY"),
        ("who", "concat(u, uuid())", "source.key.who must give the same value whenever it is computed"),
        ("who", "lag(u) OVER (ORDER BY u)", "source.key.who does not fit the source table"),
        ("who", "(SELECT 1)", "source.key.who must be computed from each row by itself"),
        ("who", "max(u)", "source.key.who does not fit the source table"),
    ],
)
def test_what_cannot_make_a_key_is_named(spark: SparkSession, name: str, expr: str, says: str) -> None:
    with pytest.raises((ConfigError, SourceError)) as caught:
        of_made(spark, name, expr)
    assert says in str(caught.value)


def test_a_made_key_is_no_part_of_the_row(spark: SparkSession) -> None:
    events = frame(spark, [("ann", None), (None, None)], "u STRING, event_time TIMESTAMP")
    made = Rule(("who",), HOUR, made=(MadeKey(name="who", expr="coalesce(u, 'nobody')"),))
    columns = ("event", "event_hash", "ordinal", "reason")

    def told(rule: Rule) -> list[tuple[Any, ...]]:
        judged = judge(events, rule, WatermarkState(now=NOON))
        return sorted(map(tuple, rejected(judged, rule).select(*columns).collect()))

    assert told(made) == told(Rule(("u",), HOUR))
    rows = rejected(judge(events, made, WatermarkState(now=NOON)), made)
    assert sorted(row["who"] for row in rows.collect()) == ["ann", "nobody"]


@pytest.mark.parametrize("null_keys", ["reject", "group"])
def test_a_made_key_fails_or_is_null_for_its_own_event(spark: SparkSession, null_keys: Any) -> None:
    at = datetime(2024, 1, 1, 12, tzinfo=UTC)
    events = frame(spark, [("7", at), ("x", at), (None, at), ("x", None)], "u STRING, event_time TIMESTAMP")
    made = Rule(("who",), HOUR, made=(MadeKey(name="who", expr="CAST(u AS INT)"),), null_keys=null_keys)
    null = "null_key" if null_keys == "reject" else None
    found = verdicts(events, made, WatermarkState(now=NOON))
    assert found == [None, "expression_failed", null, "expression_failed"]

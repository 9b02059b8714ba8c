"""Every example runs as it stands, over events that it names columns of."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.queries import sql, sql_duckdb
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions
from tests.text_tables import clock

FOLDER = Path(__file__).parents[2] / "examples"
OF_SEVERAL, STITCHED = "kafka_cogroup", "stitch"  # of more than one table
EXAMPLES = sorted(file for file in FOLDER.glob("*.yaml") if file.stem not in (OF_SEVERAL, STITCHED))
SCHEMA = "event_id INT, user_id STRING, clicked_at TIMESTAMP, page STRING, amount DOUBLE, device STRING"
CLICKS = [
    (1, "ann", clock("10:00"), "/", 0.0, "web"),
    (2, "ann", clock("10:30"), "/shop", 12.5, "web"),
    (3, "ann", clock("11:31"), "/", 0.0, "web"),
    (4, "bob", clock("10:00"), "/", 0.0, "tv"),
    (5, "bob", clock("11:59"), "/film", 3.0, "tv"),
]


FOR_EVERY_CHANGE = "dbt_lag_cumsum"


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(e, marks=pytest.mark.broad if e.stem == FOR_EVERY_CHANGE else pytest.mark.slow, id=e.stem)
        for e in EXAMPLES
    ],
)
def test_the_example_runs_and_verifies(spark: SparkSession, tmp_path: Path, example: Path) -> None:
    file = tmp_path / example.name
    file.write_text(example.read_text())
    config = load_config(file)
    clicks = spark.createDataFrame(CLICKS, SCHEMA).coalesce(1)
    clicks.write.format("delta").option("delta.enableChangeDataFeed", "true").save(config.source.table)
    init(spark, config, None, lambda _: None)
    (report,) = run(spark, config, RunOptions(once=True))
    anns = report.manifest.sessions["created"] - (1 if "spark" in example.stem else 2)
    # Exactly one gap apart: together, but for Numaflow.
    assert anns == (3 if "numaflow" in example.stem else 2)
    assert verify(spark, config, Asked()).clean


def test_there_is_an_example_for_each_system() -> None:
    names = {path.stem for path in EXAMPLES}
    systems = {"kafka_streams", "spark_session_window", "numaflow", "voltsp", "flink", "dbt_lag_cumsum", "ga4"}
    systems |= {"universal_analytics", "visits", "visitors"}
    assert names == systems
    assert all((FOLDER / f"{name}.yaml").exists() for name in (OF_SEVERAL, STITCHED))


def sessions_of(spark: SparkSession, folder: Path, example: str, clicks: list[tuple[Any, ...]]) -> DataFrame:
    """What an example makes of these."""
    file = folder / f"{example}.yaml"
    file.write_text((EXAMPLES[0].parent / file.name).read_text())
    config = load_config(file)
    source = spark.createDataFrame(clicks, SCHEMA).coalesce(1)
    source.write.format("delta").option("delta.enableChangeDataFeed", "true").save(config.source.table)
    init(spark, config, None, lambda _: None)
    run(spark, config, RunOptions(once=True))
    return spark.read.format("delta").load(config.sessions.table)


@pytest.mark.broad
def test_sessions_end_at_midnight_and_with_another_campaign_as_universal_analytics_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In Berlin it is 00:10 at 23:10."""
    hits = [
        (1, "late", clock("22:50"), "/", 0.0, "mail"),
        (2, "late", clock("23:10"), "/shop", 0.0, None),
        (3, "late", clock("23:20"), "/shop", 0.0, "ads"),
        (4, "late", clock("23:30"), "/shop", 0.0, "mail"),
        (5, "stays", clock("10:00"), "/", 0.0, "mail"),
        (6, "stays", clock("10:20"), "/", 0.0, "mail"),
    ]
    rows = sessions_of(spark, tmp_path, "universal_analytics", hits)
    told = rows.select("user_id", "hits", "landing_page", F.col("session_date").cast("string"))
    assert sorted(map(tuple, told.collect())) == [
        ("late", 1, "/", "2026-01-01"),
        ("late", 1, "/shop", "2026-01-02"),
        ("late", 2, "/shop", "2026-01-02"),
        ("stays", 2, "/", "2026-01-01"),
    ]


@pytest.mark.broad
def test_visits_begin_with_the_home_page_end_with_an_order_and_hold_so_many_pages(
    spark: SparkSession, tmp_path: Path
) -> None:
    pages = ["/", "/shop", "/order", "/shop", "/", *["/film"] * 5]
    clicks = [(n, "ann", clock(f"10:{n:02}"), page, 0.0, "web") for n, page in enumerate(pages)]
    rows = sessions_of(spark, tmp_path, "visits", [*clicks, (99, "bob", clock("18:00"), "/", 0.0, "web")])
    assert [tuple(row) for row in rows.orderBy("session_start").select("path", "end_reason").collect()] == [
        (["/", "/shop", "/order"], "ends_when"),
        (["/shop"], "starts_when"),
        (["/", "/film", "/film", "/film"], "max_events"),
        (["/film", "/film"], "gap"),
        (["/"], None),
    ]


@pytest.mark.broad
def test_sessions_are_engaged_as_ga4_says(spark: SparkSession, tmp_path: Path) -> None:
    hits = [
        (1, "stays", clock("10:00"), "/", 0.0, "web"),
        (2, "stays", clock("10:11"), None, 0.0, "web"),
        (3, "looks", clock("10:00"), "/", 0.0, "web"),
        (4, "looks", clock("10:00"), "/shop", 0.0, "web"),
        (5, "buys", clock("10:00"), "/", 9.0, "web"),
        (6, "bounces", clock("10:00"), "/", 0.0, "web"),
        (7, "bounces", clock("10:31"), "/", 0.0, "web"),
    ]
    rows = sessions_of(spark, tmp_path, "ga4", hits).select("user_id", "page_views", "engaged", "bounced")
    assert sorted(map(tuple, rows.collect())) == [
        ("bounces", 1, False, True),
        ("bounces", 1, False, True),
        ("buys", 1, True, False),
        ("looks", 2, True, False),
        ("stays", 1, True, False),
    ]


@pytest.mark.broad
def test_visitors_are_users_or_devices(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "visitors.yaml"
    file.write_text((EXAMPLES[0].parent / "visitors.yaml").read_text())
    config = load_config(file)
    hits = [
        (1, None, clock("10:00"), "/", 0.0, "web"),
        (2, "ann", clock("10:05"), "/shop", 0.0, "web"),
        (3, "ann", clock("10:10"), "/shop", 0.0, "tv"),
        (4, None, clock("10:20"), "/film", 0.0, "tv"),
    ]
    clicks = spark.createDataFrame(hits, SCHEMA).coalesce(1)
    clicks.write.format("delta").option("delta.enableChangeDataFeed", "true").save(config.source.table)
    init(spark, config, None, lambda _: None)
    run(spark, config, RunOptions(once=True))
    rows = spark.read.format("delta").load(config.sessions.table).select("visitor", "pages", "devices", "is_known")
    assert sorted(map(tuple, rows.collect())) == [
        ("ann", 2, ["tv", "web"], True),
        ("tv", 1, ["tv"], False),
        ("web", 1, ["web"], False),
    ]
    assert verify(spark, config, Asked()).clean


@pytest.mark.broad
def test_devices_get_users_and_their_sessions_move(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / f"{STITCHED}.yaml"
    file.write_text((FOLDER / file.name).read_text())
    config = load_config(file)
    assert config.source.stitch is not None
    for rows, schema, place in (
        (CLICKS, SCHEMA, config.source.table),
        ([("tv", "bob")], "device STRING, user_id STRING", config.source.stitch.table),
    ):
        frame = spark.createDataFrame(rows, schema).coalesce(1)
        frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(place)
    init(spark, config, None, lambda _: None)
    run(spark, config, RunOptions(once=True))
    sessions = spark.read.format("delta").load(config.sessions.table).select("visitor", "pages", "devices")
    assert sorted(map(tuple, sessions.collect())) == [
        ("bob", 1, ["tv"]),
        ("bob", 1, ["tv"]),
        ("web", 1, ["web"]),
        ("web", 2, ["web"]),
    ]
    query = "SELECT * FROM events ORDER BY event_id"
    told = sql.documents(sql.query_frame(spark, config, query))
    assert [(row["device"], row["owner"]) for row in told] == [("web", None)] * 3 + [("tv", "bob")] * 2
    assert sql_duckdb.documents(sql_duckdb.checked_query(config, query)) == told
    spark.sql(f"INSERT INTO delta.`{config.source.stitch.table}` VALUES ('web', 'bob')")
    (report,) = run(spark, config, RunOptions(once=True))
    assert report.manifest.events["events_read"] > 0
    sessions = spark.read.format("delta").load(config.sessions.table).select("visitor", "pages", "devices")
    assert sorted(map(tuple, sessions.collect())) == [("bob", n, ["tv", "web"]) for n in (2, 3)]
    assert verify(spark, config, Asked()).clean


@pytest.mark.broad
def test_clicks_and_calls_are_one_session(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / f"{OF_SEVERAL}.yaml"
    file.write_text((FOLDER / file.name).read_text())
    config = load_config(file)
    clicks = [*CLICKS, (6, "ann", clock("11:00"), "/ping", 0.0, "web")]
    calls = [
        ("ann", int(clock("10:59").timestamp() * 1000), 90.0),
        ("cat", int(clock("11:59").timestamp() * 1000), 5.0),
    ]
    calls_schema = "caller STRING, begun_ms BIGINT, seconds DOUBLE"
    for rows, schema, name in ((clicks, SCHEMA, "clicks"), (calls, calls_schema, "calls")):
        frame = spark.createDataFrame(rows, schema).coalesce(1)
        frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(config.of(name).table)
    init(spark, config, None, lambda _: None)
    run(spark, config, RunOptions(once=True))
    sessions = spark.read.format("delta").load(config.sessions.table)
    told = sessions.select("user_id", "clicks", "calls", "talked", "entry_page", "began_with")
    assert sorted(map(tuple, told.collect()), key=repr) == [
        ("ann", 1, 0, None, "/", "clicks"),
        ("ann", 2, 1, 90.0, "/", "clicks"),
        ("bob", 1, 0, None, "/", "clicks"),
        ("bob", 1, 0, None, "/film", "clicks"),
        ("cat", 0, 1, 5.0, None, "calls"),
    ]
    assert verify(spark, config, Asked()).clean

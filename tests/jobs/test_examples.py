"""Every example runs as it stands, over events that it names columns of."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions
from tests.text_tables import clock

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
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
    assert names == systems | {"visitors"}


@pytest.mark.broad
def test_sessions_are_engaged_as_ga4_says(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "ga4.yaml"
    file.write_text((EXAMPLES[0].parent / "ga4.yaml").read_text())
    config = load_config(file)
    hits = [
        (1, "stays", clock("10:00"), "/", 0.0, "web"),
        (2, "stays", clock("10:11"), None, 0.0, "web"),
        (3, "looks", clock("10:00"), "/", 0.0, "web"),
        (4, "looks", clock("10:00"), "/shop", 0.0, "web"),
        (5, "buys", clock("10:00"), "/", 9.0, "web"),
        (6, "bounces", clock("10:00"), "/", 0.0, "web"),
        (7, "bounces", clock("10:31"), "/", 0.0, "web"),
    ]
    clicks = spark.createDataFrame(hits, SCHEMA).coalesce(1)
    clicks.write.format("delta").option("delta.enableChangeDataFeed", "true").save(config.source.table)
    init(spark, config, None, lambda _: None)
    run(spark, config, RunOptions(once=True))
    rows = spark.read.format("delta").load(config.sessions.table).select("user_id", "page_views", "engaged", "bounced")
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

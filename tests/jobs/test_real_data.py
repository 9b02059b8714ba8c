"""Real logs, with the sessions that other people's programs have published for them."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.time.watermarks import WatermarkOverride
from tests.warehouse import Warehouse

pytestmark = [pytest.mark.realdata, pytest.mark.many_rows]

COUNTED = {
    "aggregates": [
        {"name": "urls", "fn": "count_distinct", "of": "url"},
        {"name": "way", "fn": "set", "of": "url", "at_most": 3},
    ]
}


def csv(spark: SparkSession, file: Path) -> DataFrame:
    return spark.read.csv(str(file), header=True, quote='"', escape='"', multiLine=True)


def readers(spark: SparkSession, data: Path) -> DataFrame:
    rows = csv(spark, data / "wikipedia_readers" / "session_dataset.csv.gz")
    return rows.select("uuid", F.col("timestamp").cast("timestamp").alias("at"), "url")


def messages(spark: SparkSession, data: Path) -> DataFrame:
    rows = spark.read.csv(
        str(data / "college_msg" / "CollegeMsg.txt.gz"), sep=" ", schema="a STRING, b STRING, t BIGINT"
    )
    return rows.select(F.col("a").alias("who"), F.timestamp_seconds("t").alias("at"))


def sessions_of(warehouse: Warehouse) -> DataFrame:
    return warehouse.tables.sessions.table.read()


def assert_counts_add_up(warehouse: Warehouse) -> None:
    for read, *parts in warehouse.ledger("events_read", "accepted", "late", "invalid", "duplicates"):
        assert read == sum(parts)
    accepted = sum(r[0] for r in warehouse.ledger("accepted"))
    assert sessions_of(warehouse).agg(F.sum(C.EVENT_COUNT)).collect()[0][0] == accepted


@pytest.mark.parametrize(
    ("boundary", "published"),
    [("joins", {"readers": 22_224, "messages": 25_244}), ("splits", {"readers": 22_226, "messages": 25_246})],
)
@pytest.mark.broad
def test_readers_and_messages_have_the_published_numbers_of_sessions(
    spark: SparkSession, tmp_path: Path, shared_data: Path, boundary: str, published: dict[str, int]
) -> None:
    warehouse = Warehouse(
        spark,
        tmp_path,
        source={"key": ["log", "who"]},
        session={"gap": "30m", "gap_boundary": boundary},
        aggregates=[],
    )
    ours = readers(spark, shared_data).select(F.lit("readers").alias("log"), F.col("uuid").alias("who"), "at")
    theirs = messages(spark, shared_data).select(F.lit("messages").alias("log"), "who", "at")
    warehouse.append_frame(ours.union(theirs))
    warehouse.init().run()
    by_log = (
        sessions_of(warehouse)
        .groupBy("log")
        .agg(F.count(F.lit(1)), F.sum(C.EVENT_COUNT), F.count_if(C.col(C.EVENT_COUNT) == 1), F.count_distinct("who"))
    )
    found = {log: tuple(numbers) for log, *numbers in by_log.collect()}
    assert {log: sessions for log, (sessions, *_) in found.items()} == published
    assert (found["readers"][1], found["messages"][1]) == (63_524, 59_835)
    assert (found["readers"][3], found["messages"][3]) == (10_000, 1_350)
    if boundary == "splits":
        assert found["readers"][2] == 13_138  # the published bounce rate
    assert_counts_add_up(warehouse)


@pytest.mark.broad
def test_edgar_sessions_are_those_that_two_other_programs_wrote(
    spark: SparkSession, tmp_path: Path, shared_data: Path
) -> None:
    warehouse = Warehouse(
        spark,
        tmp_path,
        source={"key": ["log", "ip"], "event_time": "concat(date, ' ', time)"},
        session={"gap": "2s"},
        aggregates=[],
    )
    logs = ("wgong_test_2", "kcg2015_kcg_test_06")
    published: Counter[tuple[str, ...]] = Counter()
    for log in logs:
        folder = shared_data / "edgar_sessionized" / log
        warehouse.append_frame(csv(spark, folder / "log.csv.gz").select(F.lit(log).alias("log"), "ip", "date", "time"))
        published.update((log, *line.split(",")) for line in (folder / "sessionization.txt").read_text().splitlines())
    warehouse.init().run()
    written = sessions_of(warehouse).select(
        "log",
        "ip",
        C.col(C.SESSION_START).cast("string"),
        C.col(C.SESSION_END).cast("string"),
        (C.col(C.DURATION_SECONDS) + 1).cast("int").cast("string"),  # they count the last second
        C.col(C.EVENT_COUNT).cast("string"),
    )
    assert Counter(tuple(r) for r in written.collect()) == published
    assert Counter(log for log, *_ in published.elements()) == {"wgong_test_2": 585, "kcg2015_kcg_test_06": 4_039}


@pytest.mark.slow
def test_online_retail_rows_without_a_customer_are_rejected_and_counted(
    spark: SparkSession, tmp_path: Path, shared_data: Path
) -> None:
    warehouse = Warehouse(
        spark,
        tmp_path,
        source={"key": ["CustomerID"], "event_time": "InvoiceDate"},
        aggregates=[{"name": "revenue", "fn": "sum", "of": "CAST(Quantity * UnitPrice AS DECIMAL(18,4))"}],
    )
    lines = csv(spark, shared_data / "online_retail" / "online_retail_by_day.csv.gz")
    typed = lines.withColumns({n: F.col(n).cast("decimal(12,3)") for n in ("Quantity", "UnitPrice")})
    warehouse.append_frame(typed)
    (report,) = warehouse.init().run()
    assert report.manifest.events == {"events_read": 541_909, "accepted": 406_829, "late": 0, "invalid": 135_080}
    assert report.manifest.rejected == {"null_key": 135_080}
    sessions, revenue = sessions_of(warehouse).agg(F.count(F.lit(1)), F.sum("revenue")).collect()[0]
    wanted = typed.where("CustomerID IS NOT NULL").agg(F.sum(F.expr("CAST(Quantity * UnitPrice AS DECIMAL(18,4))")))
    assert (sessions, revenue) == (19_969, wanted.collect()[0][0])
    rejected = warehouse.tables.rejected_events.table.read()
    assert rejected.agg(F.count(F.lit(1)), F.count_distinct(C.EVENT_HASH, C.ORDINAL)).collect() == [(135_080, 135_080)]
    assert_counts_add_up(warehouse)


@pytest.mark.slow
def test_readers_come_out_the_same_in_one_part_in_seven_and_backwards(
    spark: SparkSession, tmp_path: Path, shared_data: Path
) -> None:
    events = readers(spark, shared_data).localCheckpoint()
    parts = {
        "at once": F.lit(0),
        "in seven parts": F.abs(F.hash("uuid", "at", "url")) % 7,
        "backwards": -F.date_diff(F.to_date("at"), F.lit("2014-01-01")).cast("int"),
    }
    outcomes = {}
    for name, part in parts.items():
        warehouse = Warehouse(
            spark,
            tmp_path / name.replace(" ", "_"),
            source={"key": ["uuid"]},
            time={"allowed_lateness": "30d"},
            limits={"max_versions_per_run": 3 if name == "backwards" else 1},
            **COUNTED,
        )
        numbered = events.withColumn("part", part)
        for number in sorted(r[0] for r in numbered.select("part").distinct().collect()):
            warehouse.append_frame(numbered.where(F.col("part") == number).drop("part"))
        warehouse.init().run()
        warehouse.run(override=WatermarkOverride(flush=True))
        assert_counts_add_up(warehouse)
        outcomes[name] = warehouse.sessions_table()
    assert len(outcomes["at once"]) == 22_224
    assert outcomes["in seven parts"] == outcomes["at once"]
    assert outcomes["backwards"] == outcomes["at once"]

"""Advice on the gap: what is known of the data comes out."""

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.advise import advice, as_document, check_plot, plot, show, text
from sessionizer.jobs.reporting.advice import CANDIDATES, advise, find_valley
from sessionizer.jobs.reporting.gaps import Bots, Sample
from sessionizer.lib.errors import UsageError
from tests.warehouse import NOW, Warehouse

MINUTE, HOUR, DAY = 60, 3600, 86_400


def sample(*kinds: tuple[int, float], keys: int = 1000) -> Sample:
    """Intervals of log-normal kinds: number and median in seconds of each."""
    random = np.random.default_rng(7)
    seconds = np.concatenate([median * 2 ** random.normal(0, 1.5, number) for number, median in kinds])
    bins, counts = np.unique(np.floor(np.log2(seconds) * 4), return_counts=True)
    histogram = [(float(2 ** (b / 4)), int(n)) for b, n in zip(bins, counts, strict=True)]
    longer = [(gap, int((seconds > gap).sum()), float(seconds[seconds <= gap].sum())) for gap in CANDIDATES]
    return Sample(1.0, len(seconds) + keys, keys, 30 * DAY, len(seconds), histogram, longer, Bots())


def test_two_kinds_of_intervals_are_split_between_them() -> None:
    found = advise(sample((20_000, 40), (8_000, 20 * HOUR)), DAY)
    assert found.mixture is not None
    assert found.mixture.within_median == pytest.approx(40, rel=0.1)
    assert found.mixture.between_median == pytest.approx(20 * HOUR, rel=0.1)
    # Halfway between them on the log scale, 28 minutes, and a little on, since those within are more.
    assert found.mixture.split == pytest.approx(32 * MINUTE, rel=0.1)
    assert (found.method, found.gap) == ("mixture", 30 * MINUTE)
    assert found.valley is not None
    assert 10 * MINUTE < found.valley < 3 * HOUR


def test_intervals_of_one_kind_have_a_knee_only() -> None:
    found = advise(sample((20_000, 40)), DAY)
    assert (found.method, found.mixture, found.valley) == ("knee", None, None)
    assert MINUTE < found.gap < HOUR


def test_a_histogram_without_two_peaks_has_no_valley() -> None:
    assert find_valley([(2.0 ** (i / 4), 1000 - 10 * i) for i in range(80)]) is None


def test_too_little_is_said_to_be_too_little() -> None:
    with pytest.raises(UsageError, match="at least 100 pairs"):
        advise(sample((50, 40)), DAY)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.5, "500ms"), (90, "1m30s"), (2700, "45m"), (3600, "1h"), (5410, "1h30m"), (86_400, "1d")],
)
def test_durations_read_well(seconds: float, written: str) -> None:
    assert text(seconds) == written


@pytest.mark.slow
def test_advice_from_a_table(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Visits of five events, a minute apart, every day for eight days; and a machine, every ten seconds for an hour."""
    made = Warehouse(spark, tmp_path)
    visits = spark.range(200 * 8 * 5).select(
        F.concat(F.lit("v"), F.pmod("id", F.lit(200))).alias("user"),
        F.timestamp_seconds(
            1_767_000_000
            + F.floor(F.col("id") / 1000) * DAY
            + F.pmod(F.floor(F.col("id") / 200), F.lit(5)) * MINUTE
            + F.pmod(F.xxhash64("id"), F.lit(50))
        ).alias("at"),
    )
    machine = spark.range(361).select(
        F.lit("bot").alias("user"), F.timestamp_seconds(1_767_000_000 + F.col("id") * 10).alias("at")
    )
    made.append_frame(visits.unionByName(machine).withColumn("n", F.lit(1)))
    found = advice(spark, made.config, 1_000_000, NOW)
    assert (found.keys, found.events) == (200, 8000)
    assert (found.bots.keys, found.bots.events, found.bots.regular) == (1, 361, 1)
    assert found.method == "mixture"
    at_gap = {c.gap: c.sessions for c in found.candidates}
    assert at_gap[1800] == 1600
    document = as_document(found, made.config)
    assert (document["configured_gap"], document["bots"]["share_of_keys"]) == ("30m0s", pytest.approx(1 / 201))
    half = advice(spark, made.config, 4180, NOW)
    assert half.share == pytest.approx(0.5, abs=0.01)
    assert {c.gap: c.sessions for c in half.candidates}[1800] == pytest.approx(1600, rel=0.25)

    show(found)
    out = capsys.readouterr().out
    assert f"Take gap: {document['gap']}." in out
    assert "look like bots" in out
    for name in ("gaps.png", "gaps.svg", "gaps.html"):
        plot(found, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5_000
    with pytest.raises(UsageError, match="--plot"):
        check_plot(tmp_path / "gaps.txt")


@pytest.mark.realdata
@pytest.mark.slow
def test_wikipedia_readers_ask_for_a_gap_between_those_that_are_published(
    spark: SparkSession, shared_data: Path, tmp_path: Path
) -> None:
    """Half an hour and an hour: docs/advise.md says why it is neither."""
    made = Warehouse(spark, tmp_path)
    rows = spark.read.csv(str(shared_data / "wikipedia_readers" / "session_dataset.csv.gz"), header=True)
    made.append_frame(rows.select(F.col("uuid").alias("user"), F.col("timestamp").cast("timestamp").alias("at")))
    found = advice(spark, made.config, 1_000_000, NOW)
    assert (found.method, found.gap) == ("mixture", 45 * MINUTE)
    assert {c.gap: c.sessions for c in found.candidates}[1800] == 22_203
    assert found.bots.keys == 1

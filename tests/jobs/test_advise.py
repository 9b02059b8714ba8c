"""Advice on the gap: what is known of the data comes out; of generated mixtures see test_gap_mixtures.py."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.advise import advice, as_document, check_plot, plot, show, text
from sessionizer.jobs.reporting.advice import CANDIDATES, Advice, candidates, find_gap
from sessionizer.jobs.reporting.gaps import BINS_PER_DOUBLING, Bots, Longer, Sample
from sessionizer.lib.errors import UsageError
from tests.browser import needs_browser, seen_in_every_way
from tests.shell import Shell
from tests.warehouse import NOW, Warehouse

MINUTE, HOUR, DAY = 60, 3600, 86_400


def seconds(*kinds: tuple[int, float]) -> np.ndarray:
    """Intervals of log-normal kinds: number and median in seconds of each."""
    random = np.random.default_rng(7)
    return np.concatenate([median * 2 ** random.normal(0, 1.5, number) for number, median in kinds])


def sample(all_seconds: np.ndarray, keys: int = 1000) -> Sample:
    bins, counts = np.unique(np.floor(np.log2(all_seconds) * BINS_PER_DOUBLING), return_counts=True)
    histogram = [(float(2 ** (b / BINS_PER_DOUBLING)), int(n)) for b, n in zip(bins, counts, strict=True)]
    number = len(all_seconds)
    return Sample(1.0, number + keys, keys, 30 * DAY, number, histogram, 0, Bots())


def advised(all_seconds: np.ndarray) -> Advice:
    figures = sample(all_seconds)
    found = find_gap(figures)
    gaps = sorted({*map(float, CANDIDATES), found.gap})
    longer = [Longer(g, int((all_seconds > g).sum()), float(all_seconds[all_seconds <= g].sum())) for g in gaps]
    return Advice(found, figures, candidates(figures, longer, DAY))


POISSON_VISITS = np.concatenate(
    [
        np.random.default_rng(1).uniform(5, 20 * MINUTE, 3000),
        45 * MINUTE + np.random.default_rng(2).exponential(4 * HOUR, 1000),
    ]
)
ADVICE = {
    "two kinds": seconds((20_000, 40), (8_000, 20 * HOUR)),
    "a trough": POISSON_VISITS,
    "one kind": seconds((20_000, 40)),
    "all alike": np.full(200, 90.0),
}


def test_two_kinds_of_intervals_are_split_between_them() -> None:
    found = find_gap(sample(ADVICE["two kinds"]))
    assert found.mixture is not None
    assert found.mixture.within_median == pytest.approx(40, rel=0.1)
    assert found.mixture.between_median == pytest.approx(20 * HOUR, rel=0.1)
    # Halfway between them on the log scale, 28 minutes, and a little on, since those within are more.
    assert found.mixture.split == pytest.approx(32 * MINUTE, rel=0.1)
    assert found.mixture.lowest <= found.mixture.split <= found.mixture.highest
    assert (found.method, found.gap, found.confidence) == ("mixture", 30 * MINUTE, "high")
    assert found.valley is not None
    assert 10 * MINUTE < found.valley < 3 * HOUR


def test_intervals_of_one_kind_have_a_knee_only() -> None:
    found = find_gap(sample(ADVICE["one kind"]))
    assert (found.method, found.confidence) == ("knee", "low")
    assert (found.mixture, found.valley, found.trough) == (None, None, None)
    assert MINUTE < found.gap < HOUR


def test_too_little_is_said_to_be_too_little() -> None:
    with pytest.raises(UsageError, match="at least 100 pairs"):
        find_gap(sample(seconds((50, 40))))


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.5, "500ms"), (90, "1m30s"), (2700, "45m"), (3600, "1h"), (5410, "1h30m"), (86_400, "1d")],
)
def test_durations_read_well(seconds: float, written: str) -> None:
    assert text(seconds) == written


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("two kinds", "Confidence: high. Other samples, and other shapes"),
        ("a trough", "Confidence: high. Any gap within the trough"),
        ("one kind", "Confidence: low. There is no trough"),
        ("all alike", "Confidence: low. There is no trough"),
    ],
)
def test_the_confidence_is_told_with_its_ground(kind: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(advised(ADVICE[kind]))
    assert says in " ".join(capsys.readouterr().out.split())


def test_the_page_has_a_title_axes_with_units_the_gap_and_the_trough(tmp_path: Path) -> None:
    plot(advised(POISSON_VISITS), tmp_path / "gaps.html")
    page = (tmp_path / "gaps.html").read_text(encoding="utf-8")
    drawn = re.findall(r"<text[^>]*>([^<]+)</text>", page)
    assert {"time until the next event (log scale)", "intervals", "gap 30m", "trough 20m to 44m"} <= set(drawn)
    assert "How long until the next event of the same key" in page
    plot(advised(POISSON_VISITS), tmp_path / "gaps.svg")
    alone = (tmp_path / "gaps.svg").read_text(encoding="utf-8")
    assert "How long until the next event of the same key: gap 30m" in alone


def test_a_chart_of_one_bar_is_said_in_words(tmp_path: Path) -> None:
    plot(advised(ADVICE["all alike"]), tmp_path / "gaps.html")
    assert "All alike, from 1m16s to 1m31s: 200 intervals." in (tmp_path / "gaps.html").read_text(encoding="utf-8")


@needs_browser
@pytest.mark.parametrize("kind", ADVICE)
def test_a_browser_shows_the_page_in_every_width_and_colour(kind: str, tmp_path: Path) -> None:
    plot(advised(ADVICE[kind]), tmp_path / "gaps.html")
    seen_in_every_way(tmp_path / "gaps.html", tmp_path)


@pytest.mark.spark
def test_the_command_finds_the_gap_of_poisson_visits_in_their_trough(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty keys, each with a hundred of the intervals, one after the other."""
    made = Warehouse(spark, tmp_path)
    intervals = np.random.default_rng(3).permutation(POISSON_VISITS).reshape(40, 100)
    rows = [
        (f"u{key}", float(at), 1)
        for key, since in enumerate(intervals)
        for at in 1_767_000_000 + np.concatenate([[0.0], np.cumsum(since)])
    ]
    events = spark.createDataFrame(rows, "user STRING, at DOUBLE, n INT")
    made.append_frame(events.withColumn("at", F.col("at").cast("timestamp")))
    fields = made.config.model_dump(mode="json", exclude_none=True, include={"source", "sessions", "aggregates"})
    (made.folder / "sessionizer.yaml").write_text(yaml.safe_dump(fields))
    found = Shell(capsys, monkeypatch, made.folder).json("advise", "--plot", str(tmp_path / "gaps.html"))
    assert (found["gap"], found["method"], found["confidence"]) == ("30m", "trough", "high")
    assert found["trough"] == ["20m", "44m"]
    (at_gap,) = (c["sessions"] for c in found["candidates"] if c["gap"] == "30m")
    assert at_gap == 1000 + 40
    assert "trough 20m to 44m" in (tmp_path / "gaps.html").read_text(encoding="utf-8")


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
    figures = found.sample
    assert (figures.keys, figures.events, figures.clock) == (200, 8000, 1)
    assert (figures.bots.keys, figures.bots.events, figures.bots.regular) == (1, 361, 1)
    assert (found.found.method, found.found.confidence) == ("trough", "high")
    assert 2 * MINUTE < found.found.gap < DAY
    at_gap = {c.gap: c.sessions for c in found.candidates}
    assert at_gap[1800] == 1600
    document = as_document(found, made.config)
    assert (document["configured_gap"], document["bots"]["share_of_keys"]) == ("30m0s", pytest.approx(1 / 201))
    half = advice(spark, made.config, 4180, NOW)
    assert half.sample.share == pytest.approx(0.5, abs=0.01)
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
    made = Warehouse(spark, tmp_path, aggregates=[])
    rows = spark.read.csv(str(shared_data / "wikipedia_readers" / "session_dataset.csv.gz"), header=True)
    made.append_frame(rows.select(F.col("uuid").alias("user"), F.col("timestamp").cast("timestamp").alias("at")))
    found = advice(spark, made.config, 1_000_000, NOW)
    assert (found.found.method, found.found.gap, found.found.confidence) == ("mixture", 45 * MINUTE, "medium")
    assert {c.gap: c.sessions for c in found.candidates}[1800] == 22_203
    assert found.sample.bots.keys == 1

"""Which releases of Spark and Delta are taken, and that others are told apart before anything is started."""

import re
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.starting.versions import NEWEST, check_installed, check_pair, delta_package
from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.binding import bind
from sessionizer.lib.config import Aggregate
from sessionizer.lib.errors import ConfigError, VersionMismatch
from sessionizer.lib.rule import Rule
from tests.jobs.test_without_spark import process

ROOT = Path(__file__).parents[2]
WITHOUT_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}


@pytest.mark.parametrize(
    ("pyspark", "delta"),
    [
        ("4.0.1", "4.0.1"),
        ("4.0.5", "4.4.0"),
        ("4.1.1", "4.1.0"),
        ("4.1.1", "4.3.1"),
        ("4.2.0", "4.4.0"),
        ("4.2.0.dev1", "4.4.0"),
        ("4.2.0", None),  # a platform's own Delta tells no release
    ],
)
def test_these_go_together(pyspark: str, delta: str | None) -> None:
    check_pair(pyspark, delta)


@pytest.mark.parametrize(
    ("pyspark", "delta", "says"),
    [
        ("3.5.9", "3.3.2", "PySpark must be 4.0.1 to 4.2: got '3.5.9'."),
        ("4.0.0", "4.0.1", "PySpark must be 4.0.1 to 4.2: got '4.0.0'."),
        ("4.3.0", None, "PySpark must be 4.0.1 to 4.2: got '4.3.0'."),
        ("4.0.1", "4.0.0", "Spark 4.0 needs Delta 4.0.1 to 4.4;"),
        ("4.1.1", "4.0.1", "Spark 4.1 needs Delta 4.1.0 to 4.4;"),
        ("4.2.0", "4.3.1", "this Delta does not go with this Spark: got 'delta-spark 4.3.1 with pyspark 4.2.0'."),
        ("4.2.0", "4.5.0", "Spark 4.2 needs Delta 4.4.0 to 4.4;"),
    ],
)
def test_these_do_not(pyspark: str, delta: str | None, says: str) -> None:
    with pytest.raises(VersionMismatch) as raised:
        check_pair(pyspark, delta)
    assert says in str(raised.value)
    assert NEWEST in str(raised.value)


def test_the_jar_has_the_line_of_spark_in_its_name_from_delta_4_1_on() -> None:
    assert delta_package("4.0.1", "4.0.1") == "io.delta:delta-spark_2.13:4.0.1"
    assert delta_package("4.0.5", "4.1.0") == "io.delta:delta-spark_4.0_2.13:4.1.0"
    assert delta_package("4.2.0", "4.4.0") == "io.delta:delta-spark_4.2_2.13:4.4.0"


def test_what_is_declared_pinned_and_tested_is_what_is_taken() -> None:
    check_installed()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    in_makefile = re.search(
        r"^OLDEST := (\S+) (\S+) (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert in_makefile is not None
    *pair, arrow = in_makefile.groups()
    assert arrow.removesuffix(".0.0").replace("==", ">=") in project["dependencies"]
    pins = set((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())
    assert set(NEWEST.replace("delta-spark", "delta_spark").split()[2:]) <= pins
    for extra, package in (("spark", "pyspark"), ("connect", "pyspark[connect]")):
        delta, spark = extras[extra]
        oldest = [bound.partition(">=")[2].split(",")[0] for bound in (spark, delta)]
        assert oldest == [pin.partition("==")[2] for pin in pair]
        assert spark.startswith(f"{package}>=")
        check_pair(*oldest)


@pytest.mark.broad
@pytest.mark.parametrize("command", [("demo",), ("--version",)])
def test_another_delta_is_told_before_java_is_looked_for(tmp_path: Path, command: tuple[str, ...]) -> None:
    installed = tmp_path / "packages" / "delta_spark-3.3.2.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: delta-spark\nVersion: 3.3.2\n")
    path = f"{installed.parent}:{ROOT}"
    done = process("-m", "sessionizer.jobs.cli", *command, cwd=tmp_path, PYTHONPATH=path, **WITHOUT_JAVA)
    if command == ("--version",):  # says what there is, whatever it is
        assert (done.returncode, "delta-spark 3.3.2" in done.stdout) == (0, True)
        return
    said = " ".join(done.stderr.split())
    assert (done.returncode, "this Delta does not go with this Spark" in said) == (2, True), done.stderr
    assert "delta-spark 3.3.2 with pyspark" in said


@pytest.mark.broad
def test_what_an_older_spark_lacks_is_done_otherwise_or_told(spark: SparkSession) -> None:
    events = spark.createDataFrame([(n, n) for n in (3, 1, 2)], f"x INT, {C.US} BIGINT")

    def rule(aggregate: Aggregate) -> Rule:
        return Rule(key=(), gap=1, event_time="at", aggregates=(aggregate,))

    (first_two,) = bind(rule(Aggregate(name="xs", fn="list", of="x", at_most=2)), events)
    (row,) = events.agg(*first_two.partial()).select(*first_two.finish()).collect()
    assert row.asDict() == {"xs": [1, 2], "xs_truncated": True}

    has_sketches = hasattr(F, "kll_sketch_agg_double")
    needs = nullcontext() if has_sketches else pytest.raises(ConfigError, match="approx_percentile needs Spark")
    with needs:
        (median,) = bind(rule(Aggregate(name="median", fn="approx_percentile", of="x", percentile=0.5)), events)
        assert events.agg(*median.partial()).select(*median.finish()).collect() == [(2,)]

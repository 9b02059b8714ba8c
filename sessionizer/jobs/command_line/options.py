"""What commands have alike: options and what their texts mean, Spark behind a line of progress, the result."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sessionizer.lib.errors import Stopped, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sessionizer.jobs.console import Line
    from sessionizer.jobs.preflight import Needs, Ready
    from sessionizer.lib.config import Config as Loaded
    from sessionizer.tables.queries.local import LocalTableSet

CONFIG = Path("sessionizer.yaml")
# What commands are for, as --help groups them.
BEGIN, KEEP, HISTORY = "Begin", "Keep the tables up to date", "Change history"
TRUST, ASK = "See whether they are right", "Ask them"
Config = Annotated[Path, typer.Option("--config", "-c", help="The config file.", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for machines.")]
Metrics = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write the metrics to this Prometheus text file, here or at s3://.")
]
Once = Annotated[bool, typer.Option("--once", help="One increment, not until caught up.")]
ToVersion = Annotated[int | None, typer.Option(min=0, help="Read the source up to this version.")]
Advance = Annotated[str | None, typer.Option(metavar="TIME", help="Have the watermark reach at least this (ISO-8601).")]
Now = Annotated[
    str | None, typer.Option(metavar="TIME", help="Take this for the present time, in judging future events.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what the next increment would change.")]
From = Annotated[str | None, typer.Option("--from", metavar="TIME", help="Sessions that end at or after this.")]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Sessions that start before this.")]
Key = Annotated[list[str] | None, typer.Option(help="One key; give it once for each key column.")]
KeyFrom = Annotated[list[str] | None, typer.Option(help="Keys from this on, inclusive.")]
KeyTo = Annotated[list[str] | None, typer.Option(help="Keys up to this, inclusive.")]
Backward = Annotated[bool, typer.Option("--backward", help="Latest first.")]
Retention = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Not what ended further behind the latest."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Rows at most; a table shows 200 without it.")]
Shown = Annotated[int, typer.Option(min=1, help="Rows shown at most in a terminal table.")]
Wide = Annotated[bool, typer.Option("--wide", help="Whole cells and all columns, however wide the terminal is.")]
AsOf = Annotated[str | None, typer.Option(metavar="VERSION|TIME", help="The table as it was at this version or time.")]
Windows = Annotated[bool, typer.Option("--windows", help="The sliding windows instead of the sessions.")]
LogJson = Annotated[bool, typer.Option("--log-json", help="A line of JSON on stderr for each run.")]
Csv = Annotated[bool, typer.Option("--csv", help="All rows as CSV.")]


def instant(text: str | None, option: str) -> int | None:
    """ISO-8601 as microseconds since the epoch; without a zone it is UTC."""
    from datetime import UTC, datetime, timedelta

    from sessionizer.jobs.console import EPOCH

    if text is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} must be a time", value=text, remedy="write it as 2026-11-21T10:00:00Z") from error
    aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


def version_or_time(text: str | None) -> dict[str, int | None]:
    """What --as-of says, as `version` or as `at`."""
    is_version = text is not None and text.isdecimal()
    return {"version": int(text)} if text is not None and is_version else {"at": instant(text, "--as-of")}


def share(text: str | None, option: str = "--sample") -> float | None:
    """`1%` or `0.01` as a number between 0 and 1."""
    if text is None:
        return None
    try:
        found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        found = -1.0
    if not 0 < found <= 1:
        raise UsageError(f"{option} must be a share above 0", value=text, remedy="write it as 1% or 0.01")
    return found


def pair(text: str, option: str, form: str, remedy: str = "", *, last: bool = False) -> tuple[str, str]:
    """What stands on either side of the first `=`, or of the last one; form: how to write it."""
    name, _, value = text.rpartition("=") if last else text.partition("=")
    if not (name and value):
        raise UsageError(f"{option} must be {form}", value=text, remedy=remedy)
    return name, value


def duration(text: str, option: str) -> int:
    """`36h` or `7d` in microseconds."""
    from sessionizer.lib.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} must be a duration", value=text, remedy="write it as 36h or 7d") from error


def span(low: str | None, high: str | None) -> tuple[int | None, int | None]:
    """--from and --to; the first is earlier."""
    begins, ends = instant(low, "--from"), instant(high, "--to")
    if begins is not None and ends is not None and begins >= ends:
        raise UsageError("--from must be earlier than --to", value=f"{low} and {high}", remedy="the end is exclusive")
    return begins, ends


def ready(config: Path, needs: "Needs | None" = None, *, windows: bool = False, columns: bool = False) -> "Ready":
    """The config, once all is there that a command needs, as far as that can be told without Spark."""
    from sessionizer.jobs.config_file import load_config
    from sessionizer.jobs.preflight import check

    return check(load_config(config), needs, windows=windows, columns=columns)


@contextmanager
def session(
    config: "Path | Ready",
    first: str = "starting Spark",
    *,
    quiet: bool,
    needs: "Needs | None" = None,
    windows: bool = False,
    columns: bool = False,
    reads: Literal["news", "all", "any"] = "any",
) -> "Iterator[tuple[SparkSession, Loaded, Line]]":
    """Spark and the config, while what is being done is said.

    reads: new events, or all events and sessions, of which few need a small Spark.
    """
    from sessionizer.jobs.console import progress

    before = ready(config, needs, windows=windows, columns=columns) if isinstance(config, Path) else config
    with progress(first, quiet=quiet) as say:
        from sessionizer.jobs.spark import spark_session
        from sessionizer.tables.places.catalog import check_lasting
        from sessionizer.tables.queries.status import is_small
        from sessionizer.tables.table_set import TableSet

        small = reads != "any" and before.tables is not None and is_small(before.tables, whole=reads == "all")
        spark = spark_session(before.config.spark, small=small)
        check_lasting(spark, before.config.tables)
        with _ending_with_us(spark):
            yield spark, TableSet(spark, before.config).config, say


@contextmanager
def _ending_with_us(spark: "SparkSession") -> "Iterator[None]":
    """A command that is stopped, by SIGTERM too, has a Spark that is elsewhere stop: it would go on for minutes.

    Errors: Stopped; a JVM of our own ends by itself.
    """
    from sessionizer.lib.engine import is_remote

    elsewhere = is_remote(spark)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if elsewhere else None
    try:
        yield
    except KeyboardInterrupt:
        if elsewhere:
            spark.stop()
        raise Stopped("stopped; what was committed stays, the next run goes on from there") from None
    finally:
        if elsewhere:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def logs_alone(before: "Ready", remedy: str) -> "Iterator[LocalTableSet]":
    """The tables, for --dry-run. Errors: UsageError where only Spark can look at them; remedy: what then helps."""
    from sessionizer.tables.queries.local import LocalTableSet, NeedsSpark

    try:
        yield LocalTableSet(before.config)
    except NeedsSpark as reason:
        raise UsageError(f"--dry-run looks at tables on a path alone, and {reason}", remedy=remedy) from reason


def result(document: object, as_json: bool, show: Callable[[], Any]) -> None:
    """Say it to a machine or to a user."""
    from sessionizer.jobs.console import print_json

    if as_json:
        print_json(document)
    else:
        show()

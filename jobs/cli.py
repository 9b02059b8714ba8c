"""The command line. Heavy imports wait until a command needs them, so that --help is quick."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lib.errors import SessionizerError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lib.config import Config

app = typer.Typer(
    name="sessionizer",
    help="Turn events in a Delta Lake into sessions: incrementally, exactly, at any size.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The config file.", metavar="FILE")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for machines.")]
CONFIG = Path("sessionizer.yaml")


def main() -> None:
    """Run the command line; every failure becomes a sentence and an exit code."""
    as_json = "--json" in sys.argv
    try:
        app()
    except SessionizerError as error:
        _fail(str(error), error.exit_code, as_json)
    except KeyboardInterrupt:
        _fail("stopped; what was committed stays, the next run goes on from there", 130, as_json)
    except Exception as error:
        if not _from_spark(error):
            raise
        from jobs.spark import log_folder

        _fail(f"Spark failed: {_spark_message(error)} Spark's log is in {log_folder()}.", 3, as_json)


@app.command(epilog="Example: sessionizer init -c shop.yaml")
def init(
    config: ConfigOption = CONFIG,
    retention_days: Annotated[
        int | None, typer.Option(min=1, help="Have the source keep its log and removed files for so many days.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make the tables; turn on the change data feed of the source."""
    from jobs.init import init as make

    said: list[str] = []
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, _):
        make(spark, loaded, retention_days, said.append)
    _result({"done": said}, as_json, lambda: [print(line) for line in said])


@app.command(
    epilog="Example: sessionizer ingest access.log.gz --format access-log · "
    "sessionizer ingest clicks.csv --format csv --time-format epoch_ms --schema 'amount double'"
)
def ingest(
    files: Annotated[list[Path], typer.Argument(help="Files on this machine; .gz is unpacked.", metavar="FILE…")],
    format: Annotated[str, typer.Option("--format", "-f", help="csv | json | parquet | access-log")],
    config: ConfigOption = CONFIG,
    time_format: Annotated[
        str, typer.Option(help="iso | epoch_s | epoch_ms | a pattern such as 'dd.MM.yyyy HH:mm', of event_time.")
    ] = "iso",
    csv_sep: Annotated[str, typer.Option(help=r"What separates csv fields; '\t' is a tab.")] = ",",
    csv_quote: Annotated[str, typer.Option(help="What quotes csv fields; '' is nothing.")] = '"',
    csv_header: Annotated[bool, typer.Option(help="Whether the first csv line names the columns.")] = True,
    rename: Annotated[list[str] | None, typer.Option(help="old=new; may be given several times.")] = None,
    schema: Annotated[str | None, typer.Option(help="Column types, 'amount double, …'; csv is text else.")] = None,
    add_columns: Annotated[bool, typer.Option("--add-columns", help="Let new columns extend the table.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Add files to the source table; the same content twice adds nothing, torn lines go to rejected_events."""
    import time
    from dataclasses import asdict
    from datetime import UTC, datetime

    from jobs.console import stdout, table
    from jobs.ingest import IngestOptions
    from jobs.ingest import ingest as load

    formats = ("csv", "json", "parquet", "access-log")
    if format not in formats:
        raise UsageError(f"--format must be one of {', '.join(formats)}", value=format)
    options = IngestOptions(
        format=format,  # type: ignore[arg-type]
        time_format=time_format,
        csv_sep=csv_sep.replace("\\t", "\t"),
        csv_quote=csv_quote,
        csv_header=csv_header,
        rename=dict(_renaming(text) for text in rename or []),
        schema=schema,
        add_columns=add_columns,
    )
    begun = time.monotonic()
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        say(f"reading {files[0]}" + (f" and {len(files) - 1} more" if len(files) > 1 else ""))
        reports = load(
            spark,
            loaded,
            files,
            options,
            now=datetime.now(UTC),
            on_file=lambda r: say(f"{r.file}: {r.added:,} events added"),
        )

    def show() -> None:
        rows = [[r.file, r.lines, r.added, r.unreadable, _note(r)] for r in reports]
        stdout().print(table(["file", "lines", "added", "unreadable", ""], rows))
        if torn := sum(r.unreadable for r in reports):
            print(f"{torn:,} lines could not be read: they are in rejected_events, with reason 'unreadable'.")
        print(f"{sum(r.added for r in reports):,} events added in {time.monotonic() - begun:.1f} s.")

    _result({"files": [asdict(r) for r in reports]}, as_json, show)


@app.command(
    epilog="Example: sessionizer run -c shop.yaml · sessionizer run --flush · sessionizer run --dry-run --json"
)
def run(
    config: ConfigOption = CONFIG,
    once: Annotated[bool, typer.Option("--once", help="One increment, not until caught up.")] = False,
    to_version: Annotated[int | None, typer.Option(min=0, help="Read the source up to this version.")] = None,
    flush: Annotated[bool, typer.Option("--flush", help="End every session: all are final.")] = False,
    advance_watermark_to: Annotated[
        str | None, typer.Option(metavar="TIME", help="Have the watermark reach at least this (ISO-8601).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what the next increment would change.")] = False,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="Take this for the present time, in judging future events.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Merge the new events into the sessions table."""
    from jobs.report_run import as_document, show
    from jobs.sessionize import RunOptions
    from jobs.sessionize import run as sessionize
    from lib.pipeline import Push

    options = RunOptions(
        once=once,
        to_version=to_version,
        push=Push(_instant(advance_watermark_to, "--advance-watermark-to"), flush),
        dry_run=dry_run,
        now=_instant(now, "--now"),
    )
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        reports = sessionize(spark, loaded, options, say)
        _result(as_document(reports), as_json, lambda: show(spark, loaded, reports))


@app.command(epilog="Example: sessionizer status")
def status(config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Where the sessions table stands: position, lag, watermark, counts, last runs."""
    from jobs.status import show
    from jobs.status import status as look

    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, _):
        found = look(spark, loaded)
    _result(found, as_json, lambda: show(found))


@app.command(epilog='Example: sessionizer sql "SELECT status, count(*) FROM sessions GROUP BY status"')
def sql(
    query: Annotated[str, typer.Argument(help="A query over sessions, live_sessions, rejected_events, runs, events.")],
    config: ConfigOption = CONFIG,
    limit: Annotated[int, typer.Option(min=1, help="Rows shown at most in a terminal table.")] = 200,
    as_csv: Annotated[bool, typer.Option("--csv", help="All rows as CSV.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Query the tables; nothing can be changed."""
    from jobs.sql import csv_lines, documents, query_frame, show

    with _session(config, "starting Spark", quiet=as_json or as_csv) as (spark, loaded, _):
        frame = query_frame(spark, loaded, query)
        if as_json:
            _result(documents(frame), True, lambda: None)
        elif as_csv:
            sys.stdout.writelines(csv_lines(frame))
        else:
            show(frame, limit)


@app.command(epilog="Example: sessionizer schema > sessionizer.schema.json")
def schema() -> None:
    """Print the JSON Schema of the config file."""
    from lib.config import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@app.command(epilog="Example: sessionizer demo /tmp/shop")
def demo(
    folder: Annotated[Path, typer.Argument(help="Where the demo's files and tables go.")] = Path("sessionizer-demo"),
) -> None:
    """Make a click-stream, run three increments over it and show what happens."""
    from jobs.demo import demo as play

    play(folder)


@contextmanager
def _session(
    config: Path, first: str, *, quiet: bool
) -> "Iterator[tuple[SparkSession, Config, Callable[[str], None]]]":
    from jobs.console import progress
    from lib.config_file import load_config

    loaded = load_config(config)
    with progress(first, quiet=quiet) as say:
        from jobs.spark import spark_session

        yield spark_session(loaded.spark), loaded, say


def _result(document: object, as_json: bool, show: Callable[[], Any]) -> None:
    from jobs.console import print_json

    if as_json:
        print_json(document)
    else:
        show()


def _instant(text: str | None, option: str) -> int | None:
    from datetime import UTC, datetime, timedelta

    if text is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{option} must be a time", value=text, remedy="write it as 2026-11-21T10:00:00Z") from error
    aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _renaming(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise UsageError("--rename must be old=new", value=text)
    return old, new


def _note(report: Any) -> str:
    notes = {
        "already there": report.skipped,
        "grown: new lines only": report.grown and not report.skipped,
        "last line unfinished, left for later": report.held_back > 0,
    }
    return ", ".join(note for note, holds in notes.items() if holds)


def _from_spark(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j", "delta")


def _spark_message(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if line.startswith(("[", ": ")) or "Exception: " in line), None)
    return (telling or (lines or [type(error).__name__])[0]).lstrip(": ")[:500]


def _fail(message: str, code: int, as_json: bool) -> None:
    from jobs.console import print_json, stderr

    stderr().print("[bold red]error:[/]", end=" ")
    stderr().print(message, markup=False)
    if as_json:
        print_json({"error": message, "exit_code": code})
    sys.exit(code)


if __name__ == "__main__":
    main()

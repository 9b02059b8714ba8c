"""The command line. Heavy imports wait until a command needs them, so that --help is quick."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lib.errors import SessionizerError, UsageError, printable, without_passwords

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.console import Line
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
MetricsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the metrics to this Prometheus text file.")
]
CONFIG = Path("sessionizer.yaml")
# Which extra of the package brings a library that only some commands need.
EXTRAS = {"great_expectations": "quality", "jinja2": "report", "markupsafe": "report", "matplotlib": "report"}


def main() -> None:
    """Run the command line; every failure becomes a sentence and an exit code."""
    as_json = "--json" in sys.argv
    try:
        app()
    except SessionizerError as error:
        _fail(str(error), error.exit_code, as_json)
    except KeyboardInterrupt:
        _fail("stopped; what was committed stays, the next run goes on from there", 130, as_json)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(str(error.name).split(".")[0])
        if extra is None:
            raise
        _fail(f"this needs {error.name}, which is not installed. pip install 'sessionizer[{extra}]'.", 2, as_json)
    except Exception as error:
        from jobs.failures import storage_failure

        if (named := storage_failure(error)) is not None:
            _fail(str(named), named.exit_code, as_json)
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
    from jobs.commands.init import init as make

    said: list[str] = []
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, _):
        make(spark, loaded, retention_days, lambda line: said.append(without_passwords(line)))
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
    from jobs.ingest.ingest import IngestOptions
    from jobs.ingest.ingest import ingest as load

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
    epilog="Example: sessionizer run -c shop.yaml · sessionizer run --flush · sessionizer run --dry-run --json · "
    "sessionizer run --metrics-file /var/lib/node_exporter/sessionizer.prom --log-json"
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
    metrics_file: MetricsOption = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="A line of JSON on stderr for each run.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Merge the new events into the sessions table."""
    from jobs.reporting.run_output import as_document, log_line, show
    from jobs.run.driver import run as sessionize
    from jobs.run.phases import RunOptions, wall_clock
    from lib.time.watermarks import WatermarkOverride

    if metrics_file is not None:
        from jobs.reporting.metrics import check_writable, write_metrics
        from tables.lake import Lake

        check_writable(metrics_file)
    options = RunOptions(
        once=once,
        to_version=to_version,
        override=WatermarkOverride(_instant(advance_watermark_to, "--advance-watermark-to"), flush),
        dry_run=dry_run,
        now=_instant(now, "--now"),
    )
    with _session(config, "starting Spark", quiet=as_json or log_json, increments=True) as (spark, loaded, say):
        reports = sessionize(spark, loaded, options, say, lambda r: log_line(r, loaded) if log_json else None)
        if metrics_file is not None:
            write_metrics(Lake(spark, loaded), metrics_file, wall_clock())
        _result(as_document(reports), as_json, lambda: show(spark, loaded, reports, notes=not log_json))


@app.command(
    epilog="Example: sessionizer backfill --from 2026-01-01 --to 2026-02-01 --dry-run · "
    "sessionizer backfill --from 2026-01-01 --to 2026-01-02 --key alice"
)
def backfill(
    from_: Annotated[str, typer.Option("--from", metavar="TIME", help="Sessions that end at or after this.")],
    to: Annotated[str, typer.Option("--to", metavar="TIME", help="Sessions that start before this.")],
    config: ConfigOption = CONFIG,
    key: Annotated[
        list[str] | None, typer.Option(help="Only this key; several times for several. JSON where it has many columns.")
    ] = None,
    chunk: Annotated[str, typer.Option(metavar="DURATION", help="How much is committed at a time.")] = "7d",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show how many sessions would change; write nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Recompute from events every session that touches a span of time; late events of it are taken in.

    The watermark and the position stay; a `run` may go on at the same time. Cut off, it goes on where it stopped.
    """
    from jobs.commands.look_back import LookBack
    from jobs.commands.look_back import backfill as recompute
    from jobs.reporting.run_output import as_document, show_backfill
    from lib.time.durations import parse_duration

    low, high = _instant(from_, "--from"), _instant(to, "--to")
    if low is None or high is None:
        raise UsageError("--from and --to must both be there")
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        keys = _keys(key, loaded)
        asked = LookBack(low, high, keys, max(parse_duration(chunk), 1), dry_run)
        done = recompute(spark, loaded, asked, say, lambda _, n, of: say.bar(n, of, "spans"))
        _result(as_document(done), as_json, lambda: show_backfill(done))


@app.command(epilog="Example: sessionizer readmit --from 2026-01-01 --to 2026-01-02")
def readmit(
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Late events from this time on.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Late events before this time.")] = None,
    config: ConfigOption = CONFIG,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take quarantined late events into the sessions after all."""
    from jobs.commands.look_back import FUTURE, LookBack
    from jobs.commands.look_back import readmit as take_in
    from jobs.reporting.run_output import as_document, show_backfill

    low, high = _instant(from_, "--from"), _instant(to, "--to")
    asked = LookBack(-FUTURE if low is None else low, FUTURE if high is None else high, dry_run=dry_run)
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        done = take_in(spark, loaded, asked, say)
        _result(as_document(done), as_json, lambda: show_backfill(done))


@app.command(epilog="Example: sessionizer rebuild --yes")
def rebuild(
    config: ConfigOption = CONFIG,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make all sessions anew from the source as it stands, in one commit; RESTORE brings the old ones back."""
    from jobs.commands.look_back import rebuild as make_anew
    from jobs.reporting.run_output import as_document, show_backfill

    if not yes and not (sys.stdin.isatty() and typer.confirm("Replace all sessions by newly computed ones?")):
        raise UsageError("rebuild replaces all sessions, and nobody has said yes", remedy="add --yes")
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        done = [make_anew(spark, loaded, say=say)]
        _result(as_document(done), as_json, lambda: show_backfill(done))


@app.command(epilog="Example: sessionizer verify · sessionizer verify --from 2026-01-01 --to 2026-01-08 --sample 1%")
def verify(
    config: ConfigOption = CONFIG,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Sessions that end at or after this.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Sessions that start before this.")] = None,
    sample: Annotated[str | None, typer.Option(metavar="SHARE", help="A share of the keys, such as 1%.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute the sessions from their events and compare row by row; exit 1 if anything differs."""
    from jobs.commands.verify import Asked, as_document, show
    from jobs.commands.verify import verify as compare

    asked = Asked(_instant(from_, "--from"), _instant(to, "--to"), _share(sample))
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        verdict = compare(spark, loaded, asked, say)
        _result(as_document(verdict), as_json, lambda: show(verdict))
    if not verdict.clean:
        raise typer.Exit(1)


@app.command(epilog="Example: sessionizer maintain --dry-run · sessionizer maintain --keep rejected_events=90d")
def maintain(
    config: ConfigOption = CONFIG,
    retain: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Keep removed files so long from now on; by default as each table's property says."
        ),
    ] = None,
    recent: Annotated[
        str, typer.Option(metavar="DURATION", help="Compact days of final sessions so far behind the horizon.")
    ] = "7d",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE=DURATION",
            help="Forget what is older in rejected_events, event_sessions or session_updates; may be given again.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; do nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compact hot and recent files, delete those no longer needed, clean up the log; daily is often enough."""
    from jobs.commands.maintain import Asked, as_document, show
    from jobs.commands.maintain import maintain as take_care

    asked = Asked(
        retain=None if retain is None else _duration(retain, "--retain"),
        recent=_duration(recent, "--recent"),
        keep=dict(_keeping(text) for text in keep or []),
        dry_run=dry_run,
    )
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        done = take_care(spark, loaded, asked, say)
        _result(as_document(done, asked), as_json, lambda: show(done, asked))


@app.command(epilog="Example: sessionizer status")
def status(config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Where the sessions table stands: position, lag, watermark, counts, last runs."""
    from jobs.commands.status import show, status_without_spark
    from jobs.commands.status import status as look
    from jobs.config_file import load_config
    from tables.local import NeedsSpark

    try:
        found = status_without_spark(load_config(config))
    except NeedsSpark as reason:
        with _session(config, f"starting Spark, since {reason}", quiet=as_json) as (spark, loaded, _):
            found = look(spark, loaded)
    _result(found, as_json, lambda: show(found))


@app.command(
    epilog="Example: sessionizer sessions --key ann --earliest-end 2026-01-01 --latest-start 2026-01-02 · "
    "sessionizer sessions --key ann --backward --limit 1 · sessionizer sessions --key-from a --key-to b --as-of 12"
)
def sessions(
    config: ConfigOption = CONFIG,
    key: Annotated[list[str] | None, typer.Option(help="One key; give it once for each key column.")] = None,
    key_from: Annotated[list[str] | None, typer.Option(help="Keys from this on, inclusive.")] = None,
    key_to: Annotated[list[str] | None, typer.Option(help="Keys up to this, inclusive.")] = None,
    earliest_end: Annotated[str | None, typer.Option(metavar="TIME", help="session_end >= this (ISO-8601).")] = None,
    latest_start: Annotated[str | None, typer.Option(metavar="TIME", help="session_start <= this.")] = None,
    latest_end: Annotated[str | None, typer.Option(metavar="TIME", help="session_end <= this.")] = None,
    backward: Annotated[bool, typer.Option("--backward", help="Latest first.")] = False,
    as_of: Annotated[
        str | None, typer.Option(metavar="VERSION|TIME", help="The table as it was at this version or time.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Rows at most; a table shows 200 without it.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Look up the sessions of a key, or of a range of keys, in time order."""
    from jobs.commands.lookups import LookUp, as_documents, show
    from tables.lake import Lake

    is_version = as_of is not None and as_of.isdecimal()
    asked = LookUp(
        key=tuple(key or ()),
        key_from=tuple(key_from or ()),
        key_to=tuple(key_to or ()),
        earliest_end=_instant(earliest_end, "--earliest-end"),
        latest_start=_instant(latest_start, "--latest-start"),
        latest_end=_instant(latest_end, "--latest-end"),
        backward=backward,
        version=int(as_of) if as_of is not None and is_version else None,
        at=None if is_version else _instant(as_of, "--as-of"),
        limit=limit,
    )
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, _):
        lake = Lake(spark, loaded)
        if as_json:
            _result(as_documents(lake, asked), True, lambda: None)
        else:
            show(lake, asked)


@app.command(
    epilog="Example: sessionizer changes --mode update --since-run 41 --json · sessionizer changes --mode append"
)
def changes(
    mode: Annotated[str, typer.Option(help="append (turned final) | update (differ or gone) | complete (all rows).")],
    config: ConfigOption = CONFIG,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Of this run: run_id or run_seq.")] = None,
    since_run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Of all runs after this one; 0 is before the first.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows shown at most in a terminal table.")] = 200,
    as_csv: Annotated[bool, typer.Option("--csv", help="All rows as CSV.")] = False,
    as_json: JsonOption = False,
) -> None:
    """What a run (by default the last) or all runs after one have changed, for those who follow the sessions."""
    from jobs.commands.changes import Asked, document, show
    from tables.lake import Lake

    asked = Asked(mode, run, since_run)
    with _session(config, "starting Spark", quiet=as_json or as_csv) as (spark, loaded, _):
        lake = Lake(spark, loaded)
        if as_json:
            _result(document(lake, asked), True, lambda: None)
        else:
            show(lake, asked, limit, as_csv=as_csv)


@app.command(epilog="Example: sessionizer slide -c shop.yaml · sessionizer slide --flush · sessionizer slide --dry-run")
def slide(
    config: ConfigOption = CONFIG,
    once: Annotated[bool, typer.Option("--once", help="One increment, not until caught up.")] = False,
    to_version: Annotated[int | None, typer.Option(min=0, help="Read the source up to this version.")] = None,
    flush: Annotated[bool, typer.Option("--flush", help="Close every window: all are final.")] = False,
    advance_watermark_to: Annotated[
        str | None, typer.Option(metavar="TIME", help="Have the watermark reach at least this (ISO-8601).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what the next increment would change.")] = False,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="Take this for the present time, in judging future events.")
    ] = None,
    metrics_file: MetricsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute the sliding windows that new events concern (the config's `sliding`)."""
    from jobs.reporting.slide_output import as_document, show
    from jobs.run.driver import slide as slide_windows
    from jobs.run.phases import RunOptions, wall_clock
    from lib.time.watermarks import WatermarkOverride

    if metrics_file is not None:
        from jobs.reporting.metrics import check_writable, write_window_metrics
        from tables.lake import Lake

        check_writable(metrics_file)
    override = WatermarkOverride(_instant(advance_watermark_to, "--advance-watermark-to"), flush)
    options = RunOptions(once, to_version, override, dry_run, _instant(now, "--now"))
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        reports = slide_windows(spark, loaded, options, say)
        if metrics_file is not None:
            seconds = reports[-1].timing.seconds if reports and not dry_run else None
            write_window_metrics(Lake(spark, loaded), metrics_file, seconds, wall_clock())
        _result(as_document(reports), as_json, lambda: show(reports))


@app.command(
    epilog="Example: sessionizer windows --key ann --from 2026-01-01T10:00 --to 2026-01-01T11:00 · "
    "sessionizer windows --key ann --backward --limit 1"
)
def windows(
    config: ConfigOption = CONFIG,
    key: Annotated[list[str] | None, typer.Option(help="One key; give it once for each key column.")] = None,
    key_from: Annotated[list[str] | None, typer.Option(help="Keys from this on, inclusive.")] = None,
    key_to: Annotated[list[str] | None, typer.Option(help="Keys up to this, inclusive.")] = None,
    start_from: Annotated[str | None, typer.Option("--from", metavar="TIME", help="window_start >= this.")] = None,
    start_to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="window_start <= this.")] = None,
    backward: Annotated[bool, typer.Option("--backward", help="Latest first.")] = False,
    as_of: Annotated[int | None, typer.Option(min=0, metavar="VERSION", help="The table as it was then.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Rows at most; a table shows 200 without it.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Look up the sliding windows of a key, or of a range of keys, in time order."""
    from jobs.commands.windows import WindowLookUp, as_documents, show
    from tables.lake import Lake

    asked = WindowLookUp(
        key=tuple(key or ()),
        key_from=tuple(key_from or ()),
        key_to=tuple(key_to or ()),
        start_from=_instant(start_from, "--from"),
        start_to=_instant(start_to, "--to"),
        backward=backward,
        version=as_of,
        limit=limit,
    )
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, _):
        lake = Lake(spark, loaded)
        if as_json:
            _result(as_documents(lake, asked), True, lambda: None)
        else:
            show(lake, asked)


@app.command(
    epilog='Example: sessionizer sql "SELECT status, count(*) FROM sessions GROUP BY status" · '
    "sessionizer sql --engine duckdb --csv \"SELECT * FROM sessions WHERE session_date = DATE '2026-01-01'\""
)
def sql(
    query: Annotated[
        str,
        typer.Argument(
            help="A query over sessions, live_sessions, final_sessions, session_changes, rejected_events, runs, events."
        ),
    ],
    config: ConfigOption = CONFIG,
    engine: Annotated[
        str, typer.Option(help="spark | duckdb: answers in a second, for tables on a path, in its own SQL.")
    ] = "spark",
    limit: Annotated[int, typer.Option(min=1, help="Rows shown at most in a terminal table.")] = 200,
    as_csv: Annotated[bool, typer.Option("--csv", help="All rows as CSV.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Query the tables; nothing can be changed."""
    if engine not in ("spark", "duckdb"):
        raise UsageError("--engine must be one of spark, duckdb", value=engine)
    begin = "starting Spark"
    if engine == "duckdb":
        from jobs.commands import sql_duckdb
        from jobs.config_file import load_config
        from tables.local import NeedsSpark

        try:
            rows = sql_duckdb.checked_query(load_config(config), query)
        except NeedsSpark as reason:
            begin = f"starting Spark, since {reason}"
        else:
            if as_json:
                _result(sql_duckdb.documents(rows), True, lambda: None)
            elif as_csv:
                sys.stdout.writelines(sql_duckdb.csv_lines(rows))
            else:
                sql_duckdb.show(rows, limit)
            return
    from jobs.commands.sql import csv_lines, documents, query_frame, show

    with _session(config, begin, quiet=as_json or as_csv) as (spark, loaded, _):
        frame = query_frame(spark, loaded, query)
        if as_json:
            _result(documents(frame), True, lambda: None)
        elif as_csv:
            sys.stdout.writelines(csv_lines(frame))
        else:
            show(frame, limit)


@app.command(
    epilog="Example: sessionizer advise · sessionizer advise --plot gaps.html · sessionizer advise --sample 500000"
)
def advise(
    config: ConfigOption = CONFIG,
    sample: Annotated[
        int, typer.Option(min=1, metavar="EVENTS", help="About how many events to look at: all those of some keys.")
    ] = 2_000_000,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it, too: a .png, .svg, .pdf or .html file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Which gap? Looks at the times between the events of each key; needs the source, and no other table."""
    from jobs.commands.advise import advice, as_document, check_plot, show
    from jobs.commands.advise import plot as draw
    from jobs.run.phases import wall_clock

    if plot is not None:
        check_plot(plot)
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        say("measuring the times between events")
        found = advice(spark, loaded, sample, wall_clock())
    if plot is not None:
        draw(found, plot)
    _result(as_document(found, loaded), as_json, lambda: show(found))


@app.command(epilog="Example: sessionizer report -o report.html · sessionizer report -c shop.yaml -o shop.html")
def report(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Write one page about the sessions: when, how long, how many, late ones, runs, quality; to look at or to send."""
    from jobs.commands.report import by_duckdb, by_spark, write_report
    from jobs.config_file import load_config
    from jobs.run.phases import wall_clock
    from tables.local import NeedsSpark

    loaded = load_config(config)
    try:
        figures = write_report(by_duckdb(loaded), loaded, output, wall_clock())
    except NeedsSpark as reason:
        with _session(config, f"starting Spark, since {reason}", quiet=as_json) as (spark, loaded, _):
            figures = write_report(by_spark(spark, loaded), loaded, output, wall_clock())
    _result(figures, as_json, lambda: print(f"wrote {output}"))


@app.command(
    epilog="Example: sessionizer check · sessionizer check --max-lag 2h --max-late 1% · "
    "sessionizer check --suite my-expectations.yaml --docs public/quality"
)
def check(
    config: ConfigOption = CONFIG,
    suite: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A suite of your own about sessions, JSON or YAML.")
    ] = None,
    docs: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the Data Docs go.")] = Path("data-docs"),
    max_late: Annotated[str, typer.Option(metavar="SHARE", help="The share of events that may be late.")] = "5%",
    max_lag: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How far the watermark may be behind the clock.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the tables with Great Expectations; exit 1 if data break an expectation, 3 if one cannot be evaluated."""
    from jobs.commands.check import Asked, as_document, show
    from jobs.commands.check import check as validate
    from jobs.reporting.quality import require_library
    from jobs.run.phases import wall_clock
    from lib.time.durations import parse_duration

    require_library()
    try:
        lag = None if max_lag is None else parse_duration(max_lag)
    except ValueError as error:
        raise UsageError(f"--max-lag: {error}") from error
    asked = Asked(wall_clock(), _share(max_late, "--max-late") or 0.0, lag, tuple(suite or ()), docs)
    with _session(config, "starting Spark", quiet=as_json) as (spark, loaded, say):
        checked = validate(spark, loaded, asked, say)
    _result(as_document(checked), as_json, lambda: show(checked))
    if checked.exit_code:
        raise typer.Exit(checked.exit_code)


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
    from jobs.demo.demo import demo as play

    play(folder)


@contextmanager
def _session(
    config: Path, first: str, *, quiet: bool, increments: bool = False
) -> "Iterator[tuple[SparkSession, Config, Line]]":
    from jobs.config_file import load_config
    from jobs.console import progress

    loaded = load_config(config)
    with progress(first, quiet=quiet) as say:
        from jobs.spark import spark_session
        from tables.standing import is_small

        yield spark_session(loaded.spark, small=increments and is_small(loaded)), loaded, say


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


def _keys(values: list[str] | None, config: "Config") -> tuple[str, ...] | None:
    """Each key as a JSON object of the key columns."""
    if not values:
        return None
    names = config.source.key
    if not names:
        raise UsageError("--key needs key columns, and source.key is []")
    if len(names) == 1:
        return tuple(json.dumps({names[0]: value}) for value in values)
    try:
        parsed = [json.loads(value) for value in values]
    except ValueError:
        parsed = []
    if not parsed or any(not isinstance(p, dict) or set(p) != set(names) for p in parsed):
        raise UsageError(
            "--key must be a JSON object of all key columns, since there are several",
            value=values[0],
            remedy="write --key '" + json.dumps(dict.fromkeys(names, "…"), ensure_ascii=False) + "'",
        )
    return tuple(json.dumps(p) for p in parsed)


def _share(text: str | None, option: str = "--sample") -> float | None:
    """`1%` or `0.01` as a number between 0 and 1."""
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"{option} must be a share above 0", value=text, remedy="write it as 1% or 0.01")
    return share


def _duration(text: str, option: str) -> int:
    from lib.time.durations import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} must be a duration", value=text, remedy="write it as 36h or 7d") from error


def _keeping(text: str) -> tuple[str, int]:
    name, equals, duration = text.partition("=")
    if not (name and equals and duration):
        raise UsageError("--keep must be TABLE=DURATION", value=text, remedy="write --keep rejected_events=90d")
    return name, _duration(duration, "--keep")


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

    message = printable(without_passwords(message))
    if "--log-json" in sys.argv:
        print(json.dumps({"level": "error", "event": "error", "message": message, "exit_code": code}), file=sys.stderr)
    else:
        stderr().print("error:", style="bold red", end=" ")
        stderr().print(message)
    if as_json:
        print_json({"error": message, "exit_code": code})
    sys.exit(code)


if __name__ == "__main__":
    main()

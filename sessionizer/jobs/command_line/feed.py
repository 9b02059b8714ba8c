"""`init` and `ingest`: tables to begin with, and events from files."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sessionizer.jobs.command_line import options as opt
from sessionizer.lib.errors import UsageError, counted, without_passwords

app = typer.Typer()


@app.command(
    rich_help_panel=opt.BEGIN,
    epilog="Example: sessionizer new clicks.csv.gz · sessionizer new access.log --yes · "
    "sessionizer new events.jsonl --key user_id --time ts --gap 20m",
)
def new(
    files: Annotated[list[Path], typer.Argument(help="Files of events; the first is looked at.", metavar="FILE…")],
    config: opt.Config = opt.CONFIG,
    key: Annotated[str | None, typer.Option(help="Whose events they are: a column; '' for nobody's.")] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="When they happened.")] = None,
    gap: Annotated[str | None, typer.Option(metavar="DURATION", help="The pause that ends a session.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Write a config to begin with: format, time and key are guessed from a file, and asked for."""
    from dataclasses import replace

    from sessionizer.jobs.ingest.new import begin, next_commands, summary, write
    from sessionizer.lib.expressions import nearest

    guessed = begin(files)
    found = guessed.found

    def asked(given: str | None, what: str, likely: str | None) -> str:
        if given is not None or yes or as_json or not sys.stdin.isatty():
            return likely or "" if given is None else given
        return str(typer.prompt(what, default=likely or "", show_default=True))

    def column(given: str | None, option: str, what: str, likely: Sequence[str]) -> str | None:
        name = asked(given, f"{what} ({', '.join(likely[:5]) or 'no column looks so'})", next(iter(likely), None))
        names = [column.name for column in found.columns]
        if name and name not in names:
            raise UsageError(f"{option} must be a column", value=name, remedy=nearest(name, names, whose="the file"))
        return name or None

    chosen = replace(
        guessed,
        key=column(key, "--key", "Whose events are they", found.keys),
        time=column(time, "--time", "When did they happen", list(found.time_formats)),
        gap=asked(gap, "Which pause ends a session", guessed.gap),
    )
    opt.duration(chosen.gap, "--gap")
    write(chosen, config)
    commands = next_commands(chosen, config)

    def show() -> None:
        print(f"{summary(chosen, config)}. Next:\n")
        print("\n".join(f"  {command}" for command in commands))

    opt.result({"config": str(config), "next": commands}, as_json, show)


@app.command(rich_help_panel=opt.BEGIN, epilog="Example: sessionizer init -c shop.yaml")
def init(
    config: opt.Config = opt.CONFIG,
    retention_days: Annotated[
        int | None, typer.Option(min=0, help="Have the source keep log and removed files so many days; 0: as it is.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Make the tables; have the source record its changes, and keep them for 30 days."""
    from sessionizer.jobs.commands.init import init as make

    said: list[str] = []
    with opt.session(config, quiet=as_json, needs="source", columns=True) as (spark, loaded, _):
        make(spark, loaded, retention_days, lambda line: said.append(without_passwords(line)))
    opt.result({"done": said}, as_json, lambda: [print(line) for line in said])


@app.command(
    rich_help_panel=opt.BEGIN,
    epilog="Example: sessionizer ingest access.log.gz --format access-log · "
    "sessionizer ingest clicks.csv --time-format epoch_ms --schema 'amount double'",
)
def ingest(
    files: Annotated[
        list[str],
        typer.Argument(help="Files of this machine, files or folders of s3://; .gz is unpacked.", metavar="FILE…"),
    ],
    config: opt.Config = opt.CONFIG,
    format: Annotated[
        str | None, typer.Option("--format", "-f", help="csv | json | parquet | access-log; else as the first file is.")
    ] = None,
    time_format: Annotated[
        str, typer.Option(help="iso | epoch_s | epoch_ms | a pattern such as 'dd.MM.yyyy HH:mm', of event_time.")
    ] = "iso",
    csv_sep: Annotated[str, typer.Option(help=r"What separates csv fields; '\t' is a tab.")] = ",",
    csv_quote: Annotated[str, typer.Option(help="What quotes csv fields; '' is nothing.")] = '"',
    csv_header: Annotated[bool, typer.Option(help="Whether the first csv line names the columns.")] = True,
    rename: Annotated[list[str] | None, typer.Option(help="old=new, or user.id=user_id of a field within.")] = None,
    schema: Annotated[str | None, typer.Option(help="Column types, 'amount double, …'; csv is text else.")] = None,
    add_columns: Annotated[bool, typer.Option("--add-columns", help="Let new columns extend the table.")] = False,
    source: Annotated[str | None, typer.Option(metavar="NAME", help="Which of several sources they are of.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Add files to the source table; the same content twice adds nothing, torn lines go to rejected_events."""
    import time
    from dataclasses import asdict, replace
    from datetime import UTC, datetime

    from sessionizer.jobs.config_file import load_config
    from sessionizer.jobs.console import print_rows
    from sessionizer.jobs.fetch import fetched
    from sessionizer.jobs.ingest.ahead import check_ahead
    from sessionizer.jobs.ingest.file_reader import IngestOptions
    from sessionizer.jobs.ingest.ingest import ingest as load

    begun = time.monotonic()
    with fetched(files, load_config(config).spark) as found:
        options = IngestOptions(
            format=_format(format, found.files),
            time_format=time_format,
            csv_sep=csv_sep.replace("\\t", "\t"),
            csv_quote=csv_quote,
            csv_header=csv_header,
            rename=dict(opt.pair(text, "--rename", "old=new", last=True) for text in rename or []),
            schema=schema,
            add_columns=add_columns,
            source=source,
        )
        before = opt.ready(config)
        check_ahead(before, found.files, options)
        with opt.session(before, quiet=as_json) as (spark, loaded, say):
            others = f" and {len(found.files) - 1} more" if len(found.files) > 1 else ""
            say(f"reading {found.told(str(found.files[0]))}{others}")
            reports = load(
                spark,
                loaded,
                found.files,
                options,
                now=datetime.now(UTC),
                on_file=lambda r: say(f"{found.told(r.file)}: {counted(r.added, 'event')} added"),
            )
    reports = [replace(r, file=found.told(r.file)) for r in reports]

    def show() -> None:
        rows = [[r.file, r.lines, r.added, r.unreadable, _note(r)] for r in reports]
        print_rows(["file", "lines", "added", "unreadable", ""], rows)
        if torn := sum(r.unreadable for r in reports):
            are = "it is" if torn == 1 else "they are"
            print(f"{counted(torn, 'line')} could not be read: {are} in rejected_events, with reason 'unreadable'.")
            print("\n".join(f"  {r.file}, {said}" for r in reports for said in r.torn))
        for report in (r for r in reports if r.owed):
            lines, are = counted(report.owed, "line"), "is" if report.owed == 1 else "are"
            print(
                f"{report.file}: {lines} that an ingest which was cut off could not read {are} not in rejected_events: "
                "ingest it once with the options of that time."
            )
        added = sum(r.added for r in reports)
        print(f"{counted(added, 'event')} added in {time.monotonic() - begun:.1f} s.")

    opt.result({"files": [asdict(r) for r in reports]}, as_json, show)


def _format(asked: str | None, files: Sequence[Path]) -> Any:
    """As it is asked for, or as the first file is."""
    from sessionizer.jobs.ingest.files import check_files
    from sessionizer.jobs.ingest.guess import format_of

    if asked is None:
        check_files(files)
        return format_of(files[0])
    formats = ("csv", "json", "parquet", "access-log")
    if asked not in formats:
        raise UsageError(f"--format must be one of {', '.join(formats)}", value=asked)
    return asked


def _note(report: Any) -> str:
    notes = {
        "already there": report.skipped,
        "grown: new lines only": report.grown and not report.skipped,
        "last line unfinished, left for later": report.held_back > 0,
    }
    return ", ".join(note for note, holds in notes.items() if holds)

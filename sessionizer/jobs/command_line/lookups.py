"""`sessions`, `windows` and `changes`: what the tables say of a key, and what a run has changed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sessionizer.jobs.command_line import options as opt

if TYPE_CHECKING:
    from sessionizer.jobs.queries.lookups import LookUp, WindowLookUp

app = typer.Typer()


@app.command(
    rich_help_panel=opt.ASK,
    epilog="Example: sessionizer sessions --key ann --from 2026-01-01 --to 2026-01-02 · "
    "sessionizer sessions --key ann --backward --limit 1 · sessionizer sessions --key ann --plot ann.svg · "
    "sessionizer sessions --key-from a --key-to b --as-of 12",
)
def sessions(
    config: opt.Config = opt.CONFIG,
    key: opt.Key = None,
    key_from: opt.KeyFrom = None,
    key_to: opt.KeyTo = None,
    from_: opt.From = None,
    to: opt.To = None,
    earliest_end: Annotated[str | None, typer.Option(metavar="TIME", help="session_end >= this (ISO-8601).")] = None,
    latest_start: Annotated[str | None, typer.Option(metavar="TIME", help="session_start <= this.")] = None,
    latest_end: Annotated[str | None, typer.Option(metavar="TIME", help="session_end <= this.")] = None,
    only_open: Annotated[bool, typer.Option("--open", help="Those that have not ended; oldest first.")] = False,
    backward: opt.Backward = False,
    as_of: opt.AsOf = None,
    retention: opt.Retention = None,
    limit: opt.Limit = None,
    wide: opt.Wide = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the key's sessions and events: a .png, .svg or .pdf file.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Look up the sessions of a key, or of a range of keys, in time order."""
    from sessionizer.jobs.queries.lookups import LookUp

    low, high = opt.span(from_, to)
    ends, starts = opt.instant(earliest_end, "--earliest-end"), opt.instant(latest_start, "--latest-start")
    asked = LookUp(
        key=tuple(key or ()),
        key_from=tuple(key_from or ()),
        key_to=tuple(key_to or ()),
        earliest_end=max((us for us in (ends, low) if us is not None), default=None),
        latest_start=min((us for us in (starts, None if high is None else high - 1) if us is not None), default=None),
        latest_end=opt.instant(latest_end, "--latest-end"),
        only_open=only_open,
        backward=backward,
        **opt.version_or_time(as_of),
        limit=limit,
        retention=None if retention is None else opt.duration(retention, "--retention"),
    )
    if plot is not None:
        from sessionizer.jobs.reporting.timeline import check_plot, draw, timeline

        check_plot(plot, asked)
        draw(timeline(opt.ready(config).config, asked), plot)
        return opt.result({"plot": str(plot)}, as_json, lambda: print(f"wrote {plot}"))
    _find(config, asked, as_json=as_json, wide=wide)


@app.command(
    rich_help_panel=opt.ASK,
    epilog="Example: sessionizer changes --mode update --since-run 41 --json · sessionizer changes --mode append",
)
def changes(
    mode: Annotated[str, typer.Option(help="append (turned final) | update (differ or gone) | complete (all rows).")],
    config: opt.Config = opt.CONFIG,
    windows: opt.Windows = False,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Of this run: run_id or run_seq.")] = None,
    since_run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Of all runs after this one; 0 is before the first.")
    ] = None,
    limit: opt.Shown = 200,
    wide: opt.Wide = False,
    as_csv: opt.Csv = False,
    as_json: opt.Json = False,
) -> None:
    """What a run (by default the last) or all runs after one have changed, for those who follow the sessions."""
    from sessionizer.jobs.queries import changes as by_spark
    from sessionizer.jobs.queries import changes_duckdb, sql_duckdb
    from sessionizer.jobs.run.kinds import kind_of
    from sessionizer.tables.queries.local import NeedsSpark

    asked, quiet = by_spark.Asked(mode, run, since_run), as_json or as_csv
    before = opt.ready(config, windows=windows)
    try:
        last, query = changes_duckdb.changes(before.config, asked, windows=windows, whole=quiet)
        found = by_spark.as_document(asked, last, sql_duckdb.documents(query)) if as_json else None
        opt.result(found, as_json, lambda: changes_duckdb.show(last, query, limit, as_csv=as_csv, wide=wide))
    except NeedsSpark as reason:
        with opt.session(before, f"starting Spark, since {reason}", quiet=quiet) as (spark, loaded, _):
            kind = kind_of(spark, loaded, windows=windows)
            found = by_spark.document(kind, asked) if as_json else None
            opt.result(found, as_json, lambda: by_spark.show(kind, asked, limit, as_csv=as_csv, wide=wide))


@app.command(
    rich_help_panel=opt.ASK,
    epilog="Example: sessionizer windows --key ann --from 2026-01-01T10:00 --to 2026-01-01T11:00 · "
    "sessionizer windows --key ann --backward --limit 1",
)
def windows(
    config: opt.Config = opt.CONFIG,
    key: opt.Key = None,
    key_from: opt.KeyFrom = None,
    key_to: opt.KeyTo = None,
    start_from: Annotated[str | None, typer.Option("--from", metavar="TIME", help="window_start >= this.")] = None,
    start_to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="window_start <= this.")] = None,
    backward: opt.Backward = False,
    as_of: opt.AsOf = None,
    retention: opt.Retention = None,
    limit: opt.Limit = None,
    wide: opt.Wide = False,
    as_json: opt.Json = False,
) -> None:
    """Look up the sliding windows of a key, or of a range of keys, in time order."""
    from sessionizer.jobs.queries.lookups import WindowLookUp

    asked = WindowLookUp(
        key=tuple(key or ()),
        key_from=tuple(key_from or ()),
        key_to=tuple(key_to or ()),
        start_from=opt.instant(start_from, "--from"),
        start_to=opt.instant(start_to, "--to"),
        backward=backward,
        **opt.version_or_time(as_of),
        limit=limit,
        retention=None if retention is None else opt.duration(retention, "--retention"),
    )
    _find(config, asked, as_json=as_json, wide=wide)


def _find(config: Path, asked: "LookUp | WindowLookUp", *, as_json: bool, wide: bool) -> None:
    """Answer a look-up, without Spark where that is possible."""
    from sessionizer.jobs.queries import lookups, lookups_duckdb, sql_duckdb
    from sessionizer.tables.queries.local import NeedsSpark
    from sessionizer.tables.table_set import TableSet

    before = opt.ready(config)
    try:
        query = lookups_duckdb.look_up(before.config, asked, whole=as_json)
        document = sql_duckdb.documents(query) if as_json else None
        opt.result(document, as_json, lambda: lookups_duckdb.show(query, asked, wide=wide))
    except NeedsSpark as reason:
        with opt.session(before, f"starting Spark, since {reason}", quiet=as_json) as (spark, loaded, _):
            tables = TableSet(spark, loaded)
            document = lookups.as_documents(tables, asked) if as_json else None
            opt.result(document, as_json, lambda: lookups.show(tables, asked, wide=wide))

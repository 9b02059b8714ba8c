"""`slide` and `windows`: sliding windows, made and looked up."""

from typing import Annotated

import typer

from jobs.command_line import options as opt
from jobs.command_line.session import result, session

app = typer.Typer()


@app.command(epilog="Example: sessionizer slide -c shop.yaml · sessionizer slide --flush · sessionizer slide --dry-run")
def slide(
    config: opt.Config = opt.CONFIG,
    once: opt.Once = False,
    to_version: opt.ToVersion = None,
    flush: Annotated[bool, typer.Option("--flush", help="Close every window: all are final.")] = False,
    advance_watermark_to: opt.Advance = None,
    dry_run: opt.DryRun = False,
    now: opt.Now = None,
    metrics_file: opt.Metrics = None,
    as_json: opt.Json = False,
) -> None:
    """Recompute the sliding windows that new events concern (the config's `sliding`)."""
    from jobs.reporting.slide_output import as_document, show
    from jobs.run.driver import slide as slide_windows
    from jobs.run.phases import RunOptions, wall_clock
    from lib.time.watermarks import WatermarkOverride

    if metrics_file is not None:
        from jobs.reporting.metrics import check_writable, write_window_metrics
        from tables.table_set import TableSet

        check_writable(metrics_file)
    override = WatermarkOverride(opt.instant(advance_watermark_to, "--advance-watermark-to"), flush)
    options = RunOptions(once, to_version, override, dry_run, opt.instant(now, "--now"))
    with session(config, quiet=as_json) as (spark, loaded, say):
        reports = slide_windows(spark, loaded, options, say)
        if metrics_file is not None:
            seconds = reports[-1].timing.seconds if reports and not dry_run else None
            write_window_metrics(TableSet(spark, loaded), metrics_file, seconds, wall_clock())
        result(as_document(reports), as_json, lambda: show(reports))


@app.command(
    epilog="Example: sessionizer windows --key ann --from 2026-01-01T10:00 --to 2026-01-01T11:00 · "
    "sessionizer windows --key ann --backward --limit 1"
)
def windows(
    config: opt.Config = opt.CONFIG,
    key: opt.Key = None,
    key_from: opt.KeyFrom = None,
    key_to: opt.KeyTo = None,
    start_from: Annotated[str | None, typer.Option("--from", metavar="TIME", help="window_start >= this.")] = None,
    start_to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="window_start <= this.")] = None,
    backward: opt.Backward = False,
    as_of: Annotated[int | None, typer.Option(min=0, metavar="VERSION", help="The table as it was then.")] = None,
    limit: opt.Limit = None,
    as_json: opt.Json = False,
) -> None:
    """Look up the sliding windows of a key, or of a range of keys, in time order."""
    from jobs.queries.lookups import WindowLookUp, look_up_windows, show_windows
    from jobs.queries.sql import documents
    from tables.table_set import TableSet

    asked = WindowLookUp(
        key=tuple(key or ()),
        key_from=tuple(key_from or ()),
        key_to=tuple(key_to or ()),
        start_from=opt.instant(start_from, "--from"),
        start_to=opt.instant(start_to, "--to"),
        backward=backward,
        version=as_of,
        limit=limit,
    )
    with session(config, quiet=as_json) as (spark, loaded, _):
        tables = TableSet(spark, loaded)
        found = documents(look_up_windows(tables, asked)) if as_json else None
        result(found, as_json, lambda: show_windows(tables, asked))

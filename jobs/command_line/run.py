"""`run` and `slide`: new events into sessions, and into sliding windows."""

from typing import Annotated

import typer

from jobs.command_line import options as opt

app = typer.Typer()


@app.command(
    epilog="Example: sessionizer run -c shop.yaml · sessionizer run --flush · sessionizer run --dry-run --json · "
    "sessionizer run --metrics-file /var/lib/node_exporter/sessionizer.prom --log-json"
)
def run(
    config: opt.Config = opt.CONFIG,
    once: opt.Once = False,
    to_version: opt.ToVersion = None,
    flush: Annotated[bool, typer.Option("--flush", help="End every session: all are final.")] = False,
    advance_watermark_to: opt.Advance = None,
    dry_run: opt.DryRun = False,
    now: opt.Now = None,
    metrics_file: opt.Metrics = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="A line of JSON on stderr for each run.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Merge the new events into the sessions table."""
    from jobs.reporting.run_output import as_document, log_line, show
    from jobs.run.driver import run as sessionize
    from jobs.run.phases import RunOptions, wall_clock
    from lib.time.watermarks import WatermarkOverride

    if metrics_file is not None:
        from jobs.reporting.metrics import check_writable, write_metrics
        from tables.table_set import TableSet

        check_writable(metrics_file)
    override = WatermarkOverride(opt.instant(advance_watermark_to, "--advance-watermark-to"), flush)
    options = RunOptions(once, to_version, override, dry_run, opt.instant(now, "--now"))
    with opt.session(config, quiet=as_json or log_json, increments=True) as (spark, loaded, say):
        reports = sessionize(spark, loaded, options, say, lambda r: log_line(r, loaded) if log_json else None)
        if metrics_file is not None:
            write_metrics(TableSet(spark, loaded), metrics_file, wall_clock())
        opt.result(as_document(reports), as_json, lambda: show(spark, loaded, reports, notes=not log_json))


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
    from jobs.reporting.run_output import show_windows, windows_document
    from jobs.run.driver import slide as slide_windows
    from jobs.run.phases import RunOptions, wall_clock
    from lib.time.watermarks import WatermarkOverride

    if metrics_file is not None:
        from jobs.reporting.metrics import check_writable, write_window_metrics
        from tables.table_set import TableSet

        check_writable(metrics_file)
    override = WatermarkOverride(opt.instant(advance_watermark_to, "--advance-watermark-to"), flush)
    options = RunOptions(once, to_version, override, dry_run, opt.instant(now, "--now"))
    with opt.session(config, quiet=as_json) as (spark, loaded, say):
        reports = slide_windows(spark, loaded, options, say)
        if metrics_file is not None:
            seconds = reports[-1].timing.seconds if reports and not dry_run else None
            write_window_metrics(TableSet(spark, loaded), metrics_file, seconds, wall_clock())
        opt.result(windows_document(reports), as_json, lambda: show_windows(reports))

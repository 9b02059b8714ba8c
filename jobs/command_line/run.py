"""`run`: new events into sessions."""

from typing import Annotated

import typer

from jobs.command_line import options as opt
from jobs.command_line.session import result, session

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
    options = RunOptions(
        once=once,
        to_version=to_version,
        override=WatermarkOverride(opt.instant(advance_watermark_to, "--advance-watermark-to"), flush),
        dry_run=dry_run,
        now=opt.instant(now, "--now"),
    )
    with session(config, quiet=as_json or log_json, increments=True) as (spark, loaded, say):
        reports = sessionize(spark, loaded, options, say, lambda r: log_line(r, loaded) if log_json else None)
        if metrics_file is not None:
            write_metrics(TableSet(spark, loaded), metrics_file, wall_clock())
        result(as_document(reports), as_json, lambda: show(spark, loaded, reports, notes=not log_json))

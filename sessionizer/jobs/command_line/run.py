"""`run` and `slide`: new events into sessions, and into sliding windows."""

from pathlib import Path
from typing import Annotated

import typer

from sessionizer.jobs.command_line import options as opt

app = typer.Typer()


@app.command(
    rich_help_panel=opt.KEEP,
    epilog="Example: sessionizer run -c shop.yaml · sessionizer run --flush · sessionizer run --dry-run --json · "
    "sessionizer run --metrics-file /var/lib/node_exporter/sessionizer.prom --log-json",
)
def run(
    config: opt.Config = opt.CONFIG,
    make_tables: Annotated[bool, typer.Option("--init", help="Make the tables first, as `init` does.")] = False,
    once: opt.Once = False,
    to_version: opt.ToVersion = None,
    flush: Annotated[bool, typer.Option("--flush", help="End every session: all are final.")] = False,
    advance_watermark_to: opt.Advance = None,
    dry_run: opt.DryRun = False,
    now: opt.Now = None,
    metrics_file: opt.Metrics = None,
    log_json: opt.LogJson = False,
    as_json: opt.Json = False,
) -> None:
    """Merge the new events into the sessions table."""
    _increments(windows=False, **locals())


@app.command(
    rich_help_panel=opt.KEEP,
    epilog="Example: sessionizer slide -c shop.yaml · sessionizer slide --flush · sessionizer slide --dry-run",
)
def slide(
    config: opt.Config = opt.CONFIG,
    once: opt.Once = False,
    to_version: opt.ToVersion = None,
    flush: Annotated[bool, typer.Option("--flush", help="Close every window: all are final.")] = False,
    advance_watermark_to: opt.Advance = None,
    dry_run: opt.DryRun = False,
    now: opt.Now = None,
    metrics_file: opt.Metrics = None,
    log_json: opt.LogJson = False,
    as_json: opt.Json = False,
) -> None:
    """Recompute the sliding windows that new events concern (the config's `sliding`)."""
    _increments(windows=True, **locals())


def _increments(
    *,
    windows: bool,
    config: Path,
    make_tables: bool = False,
    once: bool,
    to_version: int | None,
    flush: bool,
    advance_watermark_to: str | None,
    dry_run: bool,
    now: str | None,
    metrics_file: str | None,
    log_json: bool,
    as_json: bool,
) -> None:
    from sessionizer.jobs.commands.init import init
    from sessionizer.jobs.preflight import nothing_new
    from sessionizer.jobs.reporting.run_output import as_document, log_line, show, show_nothing_new
    from sessionizer.jobs.run.driver import increments
    from sessionizer.jobs.run.kinds import kind_of, ruled
    from sessionizer.jobs.run.phases import RunOptions, wall_clock
    from sessionizer.lib.time.watermarks import WatermarkOverride
    from sessionizer.tables.manifest import Manifest

    override = WatermarkOverride(opt.instant(advance_watermark_to, "--advance-watermark-to"), flush)
    options = RunOptions(once, to_version, override, dry_run, opt.instant(now, "--now"))
    before = opt.ready(config, "source" if make_tables else "run", windows=windows, columns=to_version is None)
    if metrics_file is not None:
        from sessionizer.jobs.fetch import delivered
        from sessionizer.jobs.reporting.metrics import check_writable, write_metrics

        check_writable(metrics_file, before.config.spark)
    is_plain = metrics_file is None and not (flush or advance_watermark_to or to_version or make_tables)
    if before.tables is not None and is_plain:
        done = nothing_new(before.tables, ruled(before.config, windows=windows), options.now)
        if done is not None:
            return opt.result(as_document([]), as_json, lambda: show_nothing_new(done))
    with opt.session(before, quiet=as_json or log_json, reads="any" if windows else "news") as (spark, loaded, say):
        if make_tables:
            init(spark, loaded, None, say)
        kind = kind_of(spark, loaded, windows=windows)
        finished: list[Manifest] = []
        reports = increments(kind, options, say, lambda r: log_line(r, kind) if log_json else None, finished.append)
        if metrics_file is not None:
            with delivered(metrics_file, before.config.spark) as file:
                write_metrics(kind, file, wall_clock())
        unread = False
        if to_version is not None and not reports:
            left = kind.tables.events.plan(kind.home.position().manifest, None)
            unread = left is not None and not left.is_empty
        told = as_document(reports, finished, unread=unread)
        opt.result(told, as_json, lambda: show(kind, reports, notes=not log_json))

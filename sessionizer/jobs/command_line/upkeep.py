"""`maintain` and `status`: the tables kept in order, and where they stand."""

from typing import Annotated

import typer

from sessionizer.jobs.command_line import options as opt

app = typer.Typer()


@app.command(
    rich_help_panel=opt.KEEP,
    epilog="Example: sessionizer maintain --dry-run · "
    "sessionizer maintain --keep rejected_events=90d --keep sessions=730d",
)
def maintain(
    config: opt.Config = opt.CONFIG,
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
            help="Forget what is older in rejected_events, rejected_window_events, event_sessions or session_updates, "
            "and final rows of sessions or windows that ended further behind the latest; may be given again.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; do nothing.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Compact hot and recent files, delete those no longer needed, clean up the log; daily is often enough."""
    from sessionizer.jobs.commands.maintain import Asked, as_document, show
    from sessionizer.jobs.commands.maintain import maintain as take_care

    kept = [opt.pair(text, "--keep", "TABLE=DURATION", "write --keep rejected_events=90d") for text in keep or []]
    asked = Asked(
        retain=None if retain is None else opt.duration(retain, "--retain"),
        recent=opt.duration(recent, "--recent"),
        keep={name: opt.duration(text, "--keep") for name, text in kept},
        dry_run=dry_run,
    )
    with opt.session(config, quiet=as_json) as (spark, loaded, say):
        done = take_care(spark, loaded, asked, say)
        opt.result(as_document(done, asked), as_json, lambda: show(done, asked))


@app.command(rich_help_panel=opt.TRUST, epilog="Example: sessionizer status")
def status(config: opt.Config = opt.CONFIG, as_json: opt.Json = False) -> None:
    """Where the tables of sessions and windows stand: position, lag, watermark, counts, last runs."""
    from sessionizer.jobs.commands.status import show, status_without_spark
    from sessionizer.jobs.commands.status import status as look
    from sessionizer.jobs.config_file import load_config
    from sessionizer.tables.queries.local import NeedsSpark

    try:
        found = status_without_spark(load_config(config))
    except NeedsSpark as reason:
        with opt.session(config, f"starting Spark, since {reason}", quiet=as_json) as (spark, loaded, _):
            found = look(spark, loaded)
    opt.result(found, as_json, lambda: show(found))


@app.command(rich_help_panel=opt.ASK, epilog="Example: sessionizer runs · sessionizer runs --limit 100 --json")
def runs(
    config: opt.Config = opt.CONFIG,
    windows: opt.Windows = False,
    limit: opt.Shown = 20,
    as_json: opt.Json = False,
) -> None:
    """List the last runs: when, how many events, what they changed, how long they took."""
    from sessionizer.jobs.commands.status import show_runs, status_without_spark
    from sessionizer.jobs.commands.status import status as look
    from sessionizer.jobs.run.kinds import kind_of
    from sessionizer.tables.queries.local import NeedsSpark

    before = opt.ready(config, "tables", windows=windows)
    try:
        found = status_without_spark(before.config, limit)
    except NeedsSpark as reason:
        with opt.session(before, f"starting Spark, since {reason}", quiet=as_json) as (spark, loaded, _):
            if windows:  # of a table by name nobody has looked yet whether it is there
                kind_of(spark, loaded, windows=True).require()
            found = look(spark, loaded, limit)
    of = "windows" if windows else "sessions"
    last = (found["windows"] if windows else found)["last_runs"]
    opt.result(last, as_json, lambda: show_runs(last, of))

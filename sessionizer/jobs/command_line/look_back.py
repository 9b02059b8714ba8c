"""`backfill`, `readmit`, `rebuild` and `verify`: what has been computed, once more from the events."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sessionizer.jobs.command_line import options as opt
from sessionizer.lib.errors import UsageError

if TYPE_CHECKING:
    from sessionizer.lib.config import Config

app = typer.Typer()


@app.command(
    rich_help_panel=opt.HISTORY,
    epilog="Example: sessionizer backfill --from 2026-01-01 --to 2026-02-01 --dry-run · "
    "sessionizer backfill --from 2026-01-01 --to 2026-02-01 --compare · "
    "sessionizer backfill --from 2026-01-01 --to 2026-01-02 --key alice · "
    "sessionizer backfill --columns revenue",
)
def backfill(
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Sessions that end at or after this.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Sessions that start before this.")] = None,
    config: opt.Config = opt.CONFIG,
    windows: opt.Windows = False,
    key: Annotated[
        list[str] | None, typer.Option(help="Only this key; several times for several. JSON where it has many columns.")
    ] = None,
    chunk: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How much is committed at a time; else as the rows ask for.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            help="Fill this aggregate, which the config has had for less long than the table; several times for "
            "several. Late events stay out. Without --from and --to: wherever it is missing."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the spans and what lies in them, in a second; compute nothing.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compute how many sessions would change; write nothing.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Recompute from events every session that touches a span of time; late events of it are taken in.

    The watermark and the position stay; a `run` may go on at the same time. Cut off, it goes on where it stopped.
    """
    from sessionizer.jobs.commands.look_back import LookBack, check_aggregates, lacking
    from sessionizer.jobs.commands.look_back import backfill as recompute
    from sessionizer.jobs.reporting.run_output import as_document, show_backfill
    from sessionizer.jobs.run.kinds import kind_of, ruled

    low, high = opt.span(from_, to)
    names = tuple(columns or ())
    if (low is None or high is None) and (not names or (dry_run and not compare)):
        raise UsageError("--from and --to must both be there", remedy="or, but for --dry-run, --columns")
    length = None if chunk is None else opt.duration(chunk, "--chunk")
    if length is not None and length <= 0:
        raise UsageError("--chunk must be longer than nothing", value=chunk, remedy="write it as 36h or 7d")
    before = opt.ready(config, "runs", windows=windows)
    check_aggregates(ruled(before.config, windows=windows), names)
    if dry_run and not compare and low is not None and high is not None:
        from sessionizer.jobs.plans import backfill as planned

        asked = LookBack(low, high, _keys(key, before.config), length, columns=names)
        with opt.logs_alone(before, "`backfill --compare` computes what would change, by Spark") as tables:
            plan = planned.plan(tables, ruled(before.config, windows=windows), asked)
        return opt.result(planned.as_document(plan), as_json, lambda: planned.show(plan))
    with opt.session(before, quiet=as_json, reads="all") as (spark, loaded, say):
        kind = kind_of(spark, loaded, windows=windows)
        span = lacking(kind, names, low, high) if names or low is None or high is None else (low, high)
        done = []
        if span is not None:
            asked = LookBack(*span, _keys(key, loaded), length, dry_run=compare, columns=names)
            done = recompute(kind, asked, say, lambda _, n, of: say.bar(n, of, "spans"))
        opt.result(as_document(done), as_json, lambda: show_backfill(done))


@app.command(
    rich_help_panel=opt.HISTORY,
    epilog="Example: sessionizer readmit --from 2026-01-01 --to 2026-01-02 · sessionizer readmit --deletes --key alice",
)
def readmit(
    from_: Annotated[str | None, typer.Option("--from", metavar="TIME", help="Late events from this time on.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Late events before this time.")] = None,
    config: opt.Config = opt.CONFIG,
    windows: opt.Windows = False,
    key: Annotated[
        list[str] | None, typer.Option(help="Only this key; several times for several. JSON where it has many columns.")
    ] = None,
    deletes: Annotated[
        bool, typer.Option("--deletes", help="Instead: make deletes that were ignored, as a person's erasure has to.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Take quarantined late events into the sessions after all."""
    from sessionizer.jobs.commands.look_back import LookBack
    from sessionizer.jobs.commands.look_back import readmit as take_in
    from sessionizer.jobs.reporting.run_output import as_document, show_backfill
    from sessionizer.jobs.run.kinds import kind_of
    from sessionizer.lib.durations import EVER

    low, high = opt.span(from_, to)
    since, until = -EVER if low is None else low, EVER if high is None else high
    with opt.session(config, quiet=as_json, needs="rule", windows=windows, reads="all") as (spark, loaded, say):
        asked = LookBack(since, until, _keys(key, loaded), dry_run=dry_run, deletes=deletes)
        done = take_in(kind_of(spark, loaded, windows=windows), asked, say)
        opt.result(as_document(done), as_json, lambda: show_backfill(done))


@app.command(rich_help_panel=opt.HISTORY, epilog="Example: sessionizer rebuild --dry-run · sessionizer rebuild --yes")
def rebuild(
    config: opt.Config = opt.CONFIG,
    windows: opt.Windows = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which rows would come, go and change, by day; write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Make all sessions anew from the source as it stands, in one commit; RESTORE brings the old ones back."""
    from sessionizer.jobs.commands.look_back import rebuild as make_anew
    from sessionizer.jobs.reporting.run_output import as_document, show_backfill
    from sessionizer.jobs.run.kinds import kind_of

    before = opt.ready(config, "tables", windows=windows, columns=True)
    if dry_run:
        from sessionizer.jobs.commands import rebuild_plan

        with opt.session(before, quiet=as_json, reads="all") as (spark, loaded, say):
            found = rebuild_plan.plan(kind_of(spark, loaded, windows=windows), say)
            return opt.result(rebuild_plan.as_document(found), as_json, lambda: rebuild_plan.show(found))
    what = "windows" if windows else "sessions"
    if not yes and not (sys.stdin.isatty() and typer.confirm(f"Replace all {what} by newly computed ones?")):
        raise UsageError(f"rebuild replaces all {what}, and nobody has said yes", remedy="add --yes")
    with opt.session(before, quiet=as_json, reads="all") as (spark, loaded, say):
        done = [make_anew(kind_of(spark, loaded, windows=windows), say=say)]
        opt.result(as_document(done), as_json, lambda: show_backfill(done))


@app.command(
    rich_help_panel=opt.TRUST,
    epilog="Example: sessionizer verify · sessionizer verify --from 2026-01-01 --to 2026-01-08 --sample 1% --dry-run",
)
def verify(
    config: opt.Config = opt.CONFIG,
    windows: opt.Windows = False,
    from_: opt.From = None,
    to: opt.To = None,
    sample: Annotated[str | None, typer.Option(metavar="SHARE", help="A share of the keys, such as 1%.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read and checked, in a second; check nothing.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Recompute the sessions from their events and compare row by row; exit 1 if anything differs."""
    from sessionizer.jobs.commands.verify import Asked
    from sessionizer.jobs.commands.verify import verify as of_sessions
    from sessionizer.jobs.commands.verify_windows import verify_windows as of_windows
    from sessionizer.jobs.reporting.verdict import as_document, show

    asked = Asked(*opt.span(from_, to), opt.share(sample))
    before = opt.ready(config, "runs", windows=windows)
    if dry_run:
        from sessionizer.jobs.plans import verify as planned
        from sessionizer.jobs.run.kinds import ruled

        with opt.logs_alone(before, "`verify` itself looks at any, by Spark") as tables:
            plan = planned.plan(tables, ruled(before.config, windows=windows), asked)
        return opt.result(planned.as_document(plan), as_json, lambda: planned.show(plan))
    with opt.session(before, quiet=as_json, reads="all") as (spark, loaded, say):
        verdict = (of_windows if windows else of_sessions)(spark, loaded, asked, say)
        opt.result(as_document(verdict), as_json, lambda: show(verdict))
    if not verdict.clean:
        raise typer.Exit(1)


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
        parsed = [json.loads(value, parse_float=str, parse_int=str) for value in values]  # with all digits
    except ValueError:
        parsed = []
    if not parsed or any(not isinstance(p, dict) or set(p) != set(names) for p in parsed):
        raise UsageError(
            "--key must be a JSON object of all key columns, since there are several",
            value=values[0],
            remedy="write --key '" + json.dumps(dict.fromkeys(names, "…"), ensure_ascii=False) + "'",
        )
    return tuple(json.dumps(p) for p in parsed)

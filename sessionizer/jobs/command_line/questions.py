"""`sql`, `advise`, `report`, `check`: questions about the tables; `schema` and `demo`: what needs none."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sessionizer.jobs.command_line import options as opt
from sessionizer.lib.errors import UsageError, without_passwords

app = typer.Typer()


@app.command(
    rich_help_panel=opt.ASK,
    epilog='Example: sessionizer sql "SELECT status, count(*) FROM sessions GROUP BY status" · '
    "sessionizer sql --engine duckdb --csv \"SELECT * FROM sessions WHERE session_date = DATE '2026-01-01'\"",
)
def sql(
    query: Annotated[
        str,
        typer.Argument(
            help="A query over sessions, live_sessions, final_sessions, session_changes, rejected_events, runs, events."
        ),
    ],
    config: opt.Config = opt.CONFIG,
    engine: Annotated[
        str, typer.Option(help="spark | duckdb: answers in a second, for tables on a path, in its own SQL.")
    ] = "spark",
    limit: opt.Shown = 200,
    wide: opt.Wide = False,
    as_csv: opt.Csv = False,
    as_json: opt.Json = False,
) -> None:
    """Query the tables; nothing can be changed."""
    from sessionizer.jobs.console import print_csv

    if engine not in ("spark", "duckdb"):
        raise UsageError("--engine must be one of spark, duckdb", value=engine)

    def answer(by: Any, rows: object) -> None:
        def show() -> None:
            print_csv(by.text_rows(rows)) if as_csv else by.show(rows, limit, wide=wide)

        opt.result(by.documents(rows) if as_json else None, as_json, show)

    begin = "starting Spark"
    if engine == "duckdb":
        from sessionizer.jobs.config_file import load_config
        from sessionizer.jobs.queries import sql_duckdb
        from sessionizer.tables.queries.local import NeedsSpark

        try:
            return answer(sql_duckdb, sql_duckdb.checked_query(load_config(config), query))
        except NeedsSpark as reason:
            begin = f"starting Spark, since {reason}"
    from sessionizer.jobs.queries import sql as by_spark

    with opt.session(config, begin, quiet=as_json or as_csv) as (spark, loaded, _):
        answer(by_spark, by_spark.query_frame(spark, loaded, query))


@app.command(rich_help_panel=opt.ASK, epilog="Example: sessionizer show · sessionizer show --json")
def show(config: opt.Config = opt.CONFIG, as_json: opt.Json = False) -> None:
    """List the tables of the config: what a row of each is, how many there are, where they lie."""
    from sessionizer.jobs.queries import listing
    from sessionizer.tables.queries.local import NeedsSpark

    before = opt.ready(config)
    try:
        found = listing.listed(before.config)
    except NeedsSpark as reason:
        with opt.session(before, f"starting Spark, since {reason}", quiet=as_json) as (spark, loaded, _):
            found = listing.listed_by_spark(spark, loaded)
    opt.result(listing.as_document(found), as_json, lambda: listing.show(found))


@app.command(
    rich_help_panel=opt.BEGIN,
    epilog="Example: sessionizer advise · sessionizer advise --plot gaps.html · sessionizer advise --sample 500000",
)
def advise(
    config: opt.Config = opt.CONFIG,
    sample: Annotated[
        int, typer.Option(min=1, metavar="EVENTS", help="About how many events to look at: all those of some keys.")
    ] = 2_000_000,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it, too: a .png, .svg, .pdf or .html file.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Which gap? Looks at the times between the events of each key; needs the source, and no other table."""
    from sessionizer.jobs.commands.advise import advice, as_document, check_plot, show
    from sessionizer.jobs.commands.advise import plot as draw
    from sessionizer.jobs.run.phases import wall_clock

    if plot is not None:
        check_plot(plot)
    with opt.session(config, quiet=as_json, needs="source", columns=True) as (spark, loaded, say):
        say("measuring the times between events")
        found = advice(spark, loaded, sample, wall_clock())
    if plot is not None:
        draw(found, plot)
    opt.result(as_document(found, loaded), as_json, lambda: show(found))


@app.command(
    rich_help_panel=opt.ASK,
    epilog='Example: sessionizer report -o report.html · sessionizer report -o shop.html --title "Our shop"',
)
def report(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The page to write, here or at s3://.")
    ] = "report.html",
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The heading of the page; default: the name of the sessions table."),
    ] = None,
    config: opt.Config = opt.CONFIG,
    as_json: opt.Json = False,
) -> None:
    """Write one page about the sessions: when, how long, how many, late ones, runs, quality; to look at or to send."""
    from sessionizer.jobs.commands.report import by_duckdb, by_spark, write_report
    from sessionizer.jobs.fetch import delivered
    from sessionizer.jobs.run.phases import wall_clock
    from sessionizer.tables.queries.local import NeedsSpark

    loaded = opt.ready(config).config
    with delivered(output, loaded.spark) as file:
        try:
            figures = write_report(by_duckdb(loaded), loaded, file, wall_clock(), title)
        except NeedsSpark as reason:
            with opt.session(config, f"starting Spark, since {reason}", quiet=as_json) as (spark, loaded, _):
                figures = write_report(by_spark(spark, loaded), loaded, file, wall_clock(), title)
    opt.result(figures | {"report": output}, as_json, lambda: print(f"wrote {output}"))


@app.command(
    rich_help_panel=opt.TRUST,
    epilog="Example: sessionizer check · sessionizer check --max-lag 2h --max-late 1% · "
    "sessionizer check --suite my-expectations.yaml --docs public/quality",
)
def check(
    config: opt.Config = opt.CONFIG,
    windows: opt.Windows = False,
    suite: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A suite of your own about sessions, JSON or YAML.")
    ] = None,
    docs: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the Data Docs go.")] = Path("data-docs"),
    max_late: Annotated[str, typer.Option(metavar="SHARE", help="The share of events that may be late.")] = "5%",
    max_lag: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How far the watermark may be behind the clock.")
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Check the tables with Great Expectations; exit 1 if data break an expectation, 3 if one cannot be evaluated."""
    from sessionizer.jobs.commands.check import Asked, as_document, show
    from sessionizer.jobs.commands.check import check as validate
    from sessionizer.jobs.quality.checks import require_library
    from sessionizer.jobs.run.kinds import kind_of
    from sessionizer.jobs.run.phases import wall_clock

    require_library()
    lag = None if max_lag is None else opt.duration(max_lag, "--max-lag")
    asked = Asked(wall_clock(), opt.share(max_late, "--max-late") or 0.0, lag, tuple(suite or ()), docs)
    with opt.session(config, quiet=as_json, needs="tables", windows=windows, columns=True) as (spark, loaded, say):
        checked = validate(kind_of(spark, loaded, windows=windows), asked, say)
    opt.result(as_document(checked), as_json, lambda: show(checked))
    if checked.exit_code:
        raise typer.Exit(checked.exit_code)


@app.command(
    rich_help_panel=opt.TRUST,
    epilog="Example: sessionizer check-config -c shop.yaml · sessionizer check-config --file-only",
)
def check_config(
    config: opt.Config = opt.CONFIG,
    file_only: Annotated[bool, typer.Option("--file-only", help="The file alone, not the tables it names.")] = False,
    as_json: opt.Json = False,
) -> None:
    """Say all that stands in the way of a run, in a second: the file, its tables, their columns, the rule; exit 2."""
    from sessionizer.jobs.config_file import load_config
    from sessionizer.jobs.preflight import check_all

    loaded = load_config(config)
    seen = not file_only and check_all(loaded)
    unseen = "" if seen or file_only else "; only Spark can look at its tables, as `sessionizer status` does"
    tables = {name: without_passwords(location) for name, location in loaded.locations().items()}
    document = {"config": str(config), "looked_at_tables": seen, "tables": tables}
    opt.result(document, as_json, lambda: print(f"Nothing stands in the way in {config}{unseen}."))


@app.command(rich_help_panel=opt.BEGIN, epilog="Example: sessionizer schema > sessionizer.schema.json")
def schema() -> None:
    """Print the JSON Schema of the config file."""
    from sessionizer.lib.config import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@app.command(rich_help_panel=opt.BEGIN, epilog="Example: sessionizer demo /tmp/shop")
def demo(
    folder: Annotated[Path, typer.Argument(help="Where the demo's files and tables go.")] = Path("sessionizer-demo"),
    tables: Annotated[
        str | None, typer.Option(metavar="URL", help="Where its tables go instead, such as s3a://bucket/demo; empty.")
    ] = None,
) -> None:
    """Make a click-stream, run three increments over it and show what happens."""
    from sessionizer.jobs.demo.demo import demo as play

    play(folder, tables)

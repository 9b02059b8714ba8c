"""What can be told before Spark starts: by the config, and by the logs of tables that lie on this machine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import types as T

from sessionizer.jobs.run.driver import frees, may_idle
from sessionizer.jobs.run.kinds import RUNS, Ruled, fence, ruled
from sessionizer.jobs.run.phases import wall_clock
from sessionizer.jobs.run.policies import check_rejects, check_rule
from sessionizer.lib import columns as C
from sessionizer.lib.admission.united import name_problems, together
from sessionizer.lib.admission.validate import source_problems
from sessionizer.lib.config import Config, EventSource, field_of
from sessionizer.lib.errors import ConfigError, SessionizerError, SourceMismatch, TableError
from sessionizer.tables.delta import Commit
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.places.object_store import is_stored
from sessionizer.tables.position import changed_by_others, position_of
from sessionizer.tables.queries.local import LocalTable, LocalTableSet, NeedsSpark
from sessionizer.tables.source import naming, require_source
from sessionizer.tables.stitch.mapping import require_mapping, with_stitched

# What a command needs: the source; or all tables, too; or that a run can go on with their rows, too; or that these
# follow the config's rule, aggregates that a run would take up included; or that there has been a run, too.
Needs = Literal["source", "tables", "run", "rule", "runs"]


@dataclass(frozen=True)
class Ready:
    """A config, and its tables as their logs tell of them; None where only Spark can read them."""

    config: Config
    tables: LocalTableSet | None


def check(config: Config, needs: Needs | None = None, *, windows: bool = False, columns: bool = False) -> Ready:
    """Raise one error that names all that stands in the way, as far as it can be told at once.

    windows: of those, not of sessions. columns: whether those that the config names are looked for in the source.
    Errors: as named; ConfigError for several.
    """
    of = ruled(config, windows=windows)
    try:
        tables = LocalTableSet(config)
        config, of = tables.config, ruled(tables.config, windows=windows)
        found = _problems(tables, of, needs, columns=columns)
    except NeedsSpark:
        return Ready(config, None)
    _raise_all(found)
    return Ready(config, tables)


def check_all(config: Config) -> bool:
    """The same for all that runs of this config need; whether its tables could be looked at.

    Errors: ConfigError for one alone, too.
    """
    try:
        tables = LocalTableSet(config)
        each = [ruled(tables.config, windows=windows) for windows in (False, True) if not windows or config.sliding]
        _raise_all([error for of in each for error in _problems(tables, of, "run", columns=True)])
    except NeedsSpark:
        return False
    except SessionizerError as error:
        raise ConfigError(error.rule, value=error.value, remedy=error.remedy) from error
    return True


def _raise_all(found: Sequence[SessionizerError]) -> None:
    """Raise these errors as one, if there are any."""
    told = {str(error): error for error in found}
    if len(told) == 1:
        raise found[0]
    if told:
        raise ConfigError(f"{len(told)} things stand in the way:" + "".join(f"\n  - {text}" for text in told))


def nothing_new(tables: LocalTableSet, of: Ruled, at: int | None = None) -> Manifest | None:
    """The last run, if another one would surely find nothing to do, at this time; None where Spark has to look."""
    home, runs = tables.home(of.name)
    try:
        position = position_of(home)
        done = position.manifest
        if done is None or position.restored is not None or not done.has_consumed:
            return None
        now = {name: (table.id, table.version) for name, table in tables.events.items()}
        is_same = now == {name: (of.id, of.to_version) for name, of in done.consumed.items()}
        stitches = {name: of.stitch for name, of in done.consumed.items() if of.stitch is not None}
        mapped = {name: (table.id, table.version) for name, table in tables.mappings.items()}
        is_same = is_same and mapped == {name: (of.id, of.to_version) for name, of in stitches.items()}
        is_same = is_same and done.rule_fingerprint == of.fingerprint
        is_whole = runs.has_fence(Commit(fence(home.id, RUNS), done.run_seq))
        is_whole = is_whole and not (is_stored(home.location) and _is_another(runs, done))
        is_whole = is_whole and (done.live_sessions != 0 or not changed_by_others(home, done.run_seq))
    except (NeedsSpark, SessionizerError, OSError):
        return None
    follows_the_clock = of.rule.watermark_idle_after is not None and done.live_sessions != 0
    moves = follows_the_clock or may_idle(of.rule, done) or frees(of.rule, done, wall_clock() if at is None else at)
    return done if is_same and is_whole and not moves else None


def _is_another(runs: LocalTable, done: Manifest) -> bool:
    """Whether the ledger has another run of this number, or a later one, which `run` then tells of."""
    from pyarrow.dataset import field  # noqa: PLC0415  (half a second: it imports pandas)

    found = runs.dataset().to_table(columns=[C.RUN_ID], filter=field(C.RUN_SEQ) >= done.run_seq)
    return bool(found.column(C.RUN_ID).to_pylist() != [done.run_id])


def _problems(tables: LocalTableSet, of: Ruled, needs: Needs | None, *, columns: bool) -> list[SessionizerError]:
    if needs is None:
        return []
    found: list[SessionizerError] = []
    for source in tables.config.each:
        with _kept(found), naming(source.label):
            require_source(tables.events[source.label], source, changes=needs != "source")
            if (mapping := tables.mappings.get(source.label)) is not None:
                require_mapping(mapping, changes=needs != "source")
    if all(table.exists() for table in (*tables.events.values(), *tables.mappings.values())):
        found += _of_columns(tables, of) if columns else []
        if needs != "source":
            with _kept(found):
                _require_made(tables, of)
    home, _ = tables.home(of.name)
    done = position_of(home).manifest if needs in ("run", "rule", "runs") and home.exists() else None
    if needs == "runs" and not found:
        with _kept(found):
            of.consumed(done)
    if done is not None:
        with _kept(found):
            check_rule(of, done, may_evolve=needs == "run")
        rejects = tables.rejected_events if of.name == "sessions" else tables.of_windows["rejected_window_events"]
        if rejects.exists():
            with _kept(found):
                check_rejects(of, rejects, done)
    return found


def _of_columns(tables: LocalTableSet, of: Ruled) -> list[SessionizerError]:
    """What the config names and the sources do not have, each by itself, and all together."""
    found: list[SessionizerError] = []
    try:
        each = {source.label: _columns(tables, source) for source in tables.config.each}
    except SourceMismatch as error:
        return [error]
    if not of.rule.sources:
        return list(source_problems(each[""], of.rule))
    for source in tables.config.each:
        columns = each[source.label]
        for problem in (*name_problems(columns), *source_problems(columns, of.rule.of_source(source))):
            with _kept(found), naming(source.label):
                raise problem
    with _kept(found):
        both = together([each[source.label] for source in tables.config.each])
        if not found:
            names = {name.lower() for name in both.names}
            made = [
                T.StructField(name, T.StringType()) for name in (*of.rule.key, C.SOURCE) if name.lower() not in names
            ]
            found += source_problems(T.StructType([*both.fields, *made]), of.rule)
    return found


def _columns(tables: LocalTableSet, source: EventSource) -> T.StructType:
    """The columns of a source's events, that of its mapping table among them. Errors: SourceMismatch."""
    columns = tables.events[source.label].schema
    if source.stitch is None:
        return columns
    with naming(source.label):
        return with_stitched(columns, tables.mappings[source.label].schema, source.stitch, field_of(source, "stitch"))


@contextmanager
def _kept(found: list[SessionizerError]) -> Iterator[None]:
    """An error is one of several."""
    try:
        yield
    except SessionizerError as error:
        found.append(error)


def _require_made(tables: LocalTableSet, of: Ruled) -> None:
    """Raise unless all tables are there that `init` makes."""
    of_sessions = [tables.sessions, tables.rejected_events, *tables.event_outputs, tables.runs]
    asked = of_sessions if of.name == "sessions" else list(tables.of_windows.values())
    missing = [table for table in asked if not table.exists()]
    if len(missing) == 1:
        missing[0].require("`sessionizer init` makes it")
    if missing:
        *others, last = [table.field for table in missing]
        raise TableError(
            f"{', '.join(others)} and {last} do not exist",
            value=[table.location for table in missing],
            remedy="`sessionizer init` makes them",
        )

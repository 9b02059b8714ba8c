"""The two kinds of windows that a run can make, each with its tables: sessions, and sliding windows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionizer.jobs.run.compute import Planned
from sessionizer.lib import columns as C
from sessionizer.lib.accepted import AcceptedChanges
from sessionizer.lib.admission.admission import Admission
from sessionizer.lib.admission.corrections import housekept
from sessionizer.lib.admission.validate import schema_hash
from sessionizer.lib.admission.verdicts import effect
from sessionizer.lib.aggregates.binding import OF_WINDOWS, bind
from sessionizer.lib.aggregates.evolution import Evolution
from sessionizer.lib.config import Config
from sessionizer.lib.errors import TableError, UsageError
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from sessionizer.lib.windows.sessions.memberships import Memberships, event_sessions, session_updates
from sessionizer.lib.windows.sessions.sessions import Sessions
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.lib.windows.sliding.rule import sliding_of as sliding_section
from sessionizer.lib.windows.sliding.sliding import SlidingWindows
from sessionizer.lib.windows.windows import Stored, Windows
from sessionizer.tables.delta import Commit, Table
from sessionizer.tables.delta.readable import opens
from sessionizer.tables.event_outputs import EventOutput
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.position import Position, can_follow, in_force
from sessionizer.tables.rejected_events import RejectedEvents
from sessionizer.tables.runs import Runs
from sessionizer.tables.table_set import TableSet
from sessionizer.tables.window_table import WindowTable

REJECTED, RUNS = "rejected_events", "runs"  # what runs call these side tables among others
NO_TIME = WatermarkState(now=0)


def fence(home: str, role: str) -> str:
    """The application that the writes of runs to a side table go by. home: the id of their own table."""
    return f"{home}:{role}"


@dataclass(frozen=True)
class Ruled:
    """What the configuration alone says of the windows that a run makes.

    name: of their rows. command: what an ordinary run is started by; option: what other commands mean it by. rule: what
    events are judged by. summary: what decides what a row is, fingerprint: its hash. lateness: the field that says how
    late an event may be. expectations: a file. evolves: whether a run takes up and drops aggregates.
    """

    name: str
    command: str
    option: str
    rule: Rule
    shape: object
    summary: dict[str, object]
    fingerprint: str
    lateness: str
    expectations: str | None
    evolves: bool

    @property
    def anew(self) -> str:
        """What helps where the rule has changed."""
        again = f"`sessionizer rebuild{self.option}` makes all {self.name} anew by the new rule"
        return f"{again}; or set the old rule again"

    def evolved(self, done: Manifest | None) -> Evolution:
        """What becomes of the aggregates in the next run; nothing where none may come or go without a rebuild."""
        return done.evolution(self.summary) if done is not None and self.evolves else Evolution()

    def consumed(self, done: Manifest | None) -> Manifest:
        """This manifest. Errors: UsageError if nothing has been consumed."""
        if not (done := self.begun(done)).has_consumed:
            raise UsageError("nothing has been consumed yet", remedy=f"`sessionizer {self.command}` comes first")
        return done

    def begun(self, done: Manifest | None) -> Manifest:
        """This manifest, whether anything has been consumed or not. Errors: UsageError if there is none."""
        if done is None:
            raise UsageError("nothing has been consumed yet", remedy=f"`sessionizer {self.command}` comes first")
        return done


@dataclass(frozen=True)
class Kind(Ruled):
    """What a run has to know of the windows that it makes, their tables with it.

    make: the steps by a rule, for rows of these columns, at a wall clock in microseconds. runs: the ledger. outputs:
    the optional tables that follow each event.
    """

    tables: TableSet
    make: Callable[[Rule, DataFrame, int], Windows]
    home: WindowTable
    rejected_events: RejectedEvents
    runs: Runs
    outputs: Mapping[str, EventOutput] = field(default_factory=dict)

    def side_tables(self) -> list[Table]:
        """The tables that a run writes after its own; the ledger is the last."""
        return [*self.roles().values()]

    def roles(self) -> dict[str, Table]:
        """The same by what they are to the run."""
        outputs = {name: of.table for name, of in self.outputs.items()}
        return {REJECTED: self.rejected_events.table, **outputs, RUNS: self.runs.table}

    def side_table_ids(self) -> dict[str, str]:
        """Those of rejected_events and of the optional tables, by name: a table made again has another."""
        return {name: table.id for name, table in self.roles().items() if name != RUNS}

    def require(self) -> None:
        """Raise unless every table is there and the source records its changes."""
        self.tables.events.require()
        for table in (self.home.table, *self.side_tables()):
            with table.one_look():
                table.require("`sessionizer init` makes it")
                table.require_memory()

    def rejects_before(self, run_seq: int, position: Position) -> DataFrame | None:
        """The rows of rejected_events that runs before this one have left; None: there are none.

        Behind a RESTORE as they were then, whether the table has followed it yet or not.
        Errors: TableError where its log no longer reaches back so far.
        """
        if position.restored is not None:
            undoing, done = Commit(fence(self.home.table.id, REJECTED), position.restored), position.manifest
            last = 0 if done is None else done.run_seq
            self.rejected_events.table.check_tells(undoing.app_id, last)
            if (left := self.rejected_events.without(undoing, last)) is not None:
                return left
        return self.rejected_events.before(run_seq)

    def follows(self, position: Position) -> bool:
        """Whether rejected_events tells what it held when the table stood so, where a RESTORE has undone later runs."""
        if position.restored is None:
            return True
        last = 0 if position.manifest is None else position.manifest.run_seq
        now, number = self.rejected_events.table.read(), position.version + 1
        return can_follow(self.home.table, last) and opens(lambda: self.rejects_before(number, position) or now)

    def as_of(self, done: Manifest) -> "Kind":
        """The same by the aggregates of a run, where the rule differs by these alone."""
        if not self.evolves or done.rule_fingerprint == self.fingerprint or not done.follows(self.summary):
            return self
        rule = replace(self.rule, aggregates=done.aggregates())
        return replace(self, rule=rule, shape=rule, summary=dict(done.rule), fingerprint=done.rule_fingerprint)

    def before(self, run: Manifest) -> Position:
        """Where the table stood before a run; where the log has the run before no longer, by what this one tells.

        Behind a RESTORE a rebuild alone may have begun before the others have followed.
        Errors: TableError where that is not enough.
        """
        before, restored = next(in_force(self.home.table, run.sessions_version))
        if before is None and (read := self.runs.before(run.run_seq)) is not None:
            before = self._told_by(run, read)
        position = Position(run.sessions_version, before, restored)
        return position if run.mode == "rebuild" and self.follows(position) else replace(position, restored=None)

    def _told_by(self, run: Manifest, read: Mapping[str, int]) -> Manifest:
        """The manifest of the run before. read: how far that had read each source."""
        if run.retold or any(since is not None and since.run_seq == run.run_seq for since in run.filled.values()):
            raise TableError(
                f"run {run.run_id} was cut off, and the log no longer has the run before it, by whose columns it goes",
                value=self.home.table.location,
                remedy=f"`sessionizer rebuild{self.option}` makes all {self.name} anew, unless events stay out for "
                f"good; then make {self.name} in a table of its own",
            )
        unread = {name: {} if read.get(name) is not None else {"to_version": None} for name in run.sources}
        sources = {name: of.model_copy(update=unread[name]) for name, of in run.sources.items()}
        return run.model_copy(update={"live_sessions": None, "sources": sources})

    def fitting(self, done: Manifest | None, events: DataFrame) -> str:
        """The hash of the rule and the columns of events; raises if the table has not what they make, or gets it."""
        schema = self.schema_hash(events)
        if not self.home.fits(schema, done):
            evolved = self.evolved(done)
            self.home.check_schema(made := schema_of(self.make, self.rule, events), evolved)
            self.home.table.check_names(made)
            for name, made in output_schemas(self, events).items() if self.outputs else ():
                if name in self.outputs:
                    self.outputs[name].check_columns(made, self.anew)
        return schema

    def check_names(self, events: DataFrame) -> None:
        """Raise where a rebuild would bring a column to a table that cannot have its name, as it was made."""
        self.home.table.check_names(schema_of(self.make, self.rule, events))
        there = set(self.rejected_events.table.schema.names)
        self.rejected_events.table.check_addable([name for name in self.rule.key if name not in there])
        for name, columns in output_schemas(self, events).items() if self.outputs else ():
            if name in self.outputs:
                self.outputs[name].table.check_names(columns)

    def schema_hash(self, events: DataFrame) -> str:
        """A hash of what the columns of the table follow from."""
        return schema_hash(events, self.shape)


def ruled(config: Config, *, windows: bool = False) -> Ruled:
    """What a configuration says of sessions, or of windows. Errors: ConfigError where it has none."""
    if not windows:
        rule = Rule.of(config)
        return Ruled(
            name="sessions",
            command="run",
            option="",
            rule=rule,
            shape=rule,
            summary=config.rule_summary(),
            fingerprint=config.fingerprint(),
            lateness="time.allowed_lateness",
            expectations=config.expectations,
            evolves=True,
        )
    sliding = SlidingRule.of(config)
    return Ruled(
        name="windows",
        command="slide",
        option=" --windows",
        rule=sliding.events,
        shape=sliding,
        summary=sliding.summary(),
        fingerprint=sliding.fingerprint(),
        lateness="sliding.grace",
        expectations=sliding_section(config).expectations,
        evolves=False,
    )


def sessions_of(tables: TableSet) -> Kind:
    """Sessions, as the configuration states them."""
    of = ruled(tables.config)
    return Kind(
        **vars(of),
        tables=tables,
        make=Sessions.of,
        home=tables.sessions,
        rejected_events=tables.rejected_events,
        runs=tables.runs,
        outputs=tables.event_outputs,
    )


def sliding_of(tables: TableSet) -> Kind:
    """Sliding windows, as the configuration states them. Errors: ConfigError where it has none."""
    of, rule = ruled(tables.config, windows=True), SlidingRule.of(tables.config)
    return Kind(
        **vars(of),
        tables=tables,
        make=lambda judged_by, events, _: SlidingWindows(
            replace(rule, events=judged_by), bind(judged_by, events, OF_WINDOWS)
        ),
        home=tables.windows,
        rejected_events=tables.rejected_window_events,
        runs=tables.window_runs,
    )


def kind_of(spark: SparkSession, config: Config, *, windows: bool = False) -> Kind:
    """Sessions of a configuration, or its sliding windows. Errors: ConfigError where it has none."""
    tables = TableSet(spark, config)
    return sliding_of(tables) if windows else sessions_of(tables)


def schema_of(make: Callable[[Rule, DataFrame, int], Windows], rule: Rule, events: DataFrame) -> T.StructType:
    """The columns that windows of such events have as a table, run_id included; reads nothing."""
    windows = make(rule, events, 0)
    housekept(events, rule, None)
    judged = Admission(events, rule, NO_TIME, None, Planned(), is_first=True).judged()
    partials = windows.fold(judged).withColumn(C.EFFECT, effect())
    changes = AcceptedChanges(partials, lambda _: judged, NO_TIME)
    rows = windows.settle(windows.merge(changes, Stored(), Planned()).windows, NO_TIME, NO_TIME)
    fields = rows.select(*C.cols(windows.columns())).schema.fields
    return T.StructType([*fields[:-1], T.StructField(C.RUN_ID, T.StringType()), fields[-1]]).toNullable()


def output_schemas(kind: Kind, events: DataFrame) -> dict[str, T.StructType]:
    """The columns of event_sessions and of session_updates, run_id included; reads nothing."""
    rule = kind.rule
    judged = Admission(events, rule, NO_TIME, None, Planned(), is_first=True).judged()
    named = judged.withColumn(C.SESSION, C.col(C.VERDICT))
    ids = judged.select(C.col(C.VERDICT).alias("__old_id"), C.col(C.VERDICT).alias(C.SESSION_ID))
    of = Memberships(named, None, ids, None)
    made = {
        "event_sessions": event_sessions(of, rule),
        "session_updates": session_updates(of, None, rule, bind(rule, events)),
    }
    run_id = T.StructField(C.RUN_ID, T.StringType())
    return {
        name: T.StructType([*[f for f in frame.schema.fields if not f.name.startswith("__")], run_id]).toNullable()
        for name, frame in made.items()
    }

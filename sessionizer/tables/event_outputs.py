"""event_sessions and session_updates: which session each event went into, and what the session came to with it."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.evolution import told_by, widened
from sessionizer.lib.durations import EVER
from sessionizer.lib.errors import TableError
from sessionizer.lib.time.watermarks import latest
from sessionizer.lib.windows.sessions.memberships import INSERT, KIND, OLD_ID, REMOVE
from sessionizer.tables.delta import Commit, Table
from sessionizer.tables.manifest import Manifest

COMPLETE_FROM = "sessionizer.completeFrom"
WHOLE = "sessionizer.whole"  # of a table that was there before the first session, or was made anew with all


class EventOutput:
    """One of the two optional tables; both keep the rows of a session under its present id."""

    def __init__(self, spark: SparkSession, location: str, name: str) -> None:
        self.table = Table(spark, location, f"outputs.{name}")

    @property
    def is_whole(self) -> bool:
        """Whether the events of all sessions came to it, and not only of those that changed since it was made."""
        return self.table.setting(WHOLE) is not None

    def note_whole(self) -> None:
        """Say so: behind the write that made it so, for a RESTORE to before that takes the mark back, too."""
        told = {WHOLE: "true"} if not self.is_whole else {}
        told |= {} if self.complete_from() in (None, -EVER) else {COMPLETE_FROM: str(-EVER)}
        if told:
            self.table.change_settings(told)

    def check_columns(self, made: T.StructType, remedy: str) -> None:
        """Raise unless the columns that the table has of these are of their types, and the others can come to it.

        Errors: TableError, ConfigError.
        """
        self.table.check_names(made)
        there = {field.name.lower(): field.dataType for field in self.table.schema.fields}
        wrong = {f.name: (there[f.name.lower()], f.dataType) for f in made.fields if f.name.lower() in there}
        wrong = {name: types for name, types in wrong.items() if _clash(*types)}
        if wrong:
            raise TableError(
                f"{self.table.field} must have the columns that the configuration and the source make: "
                + "; ".join(
                    f"{name} is {had.simpleString().upper()} and must be {of.simpleString().upper()}"
                    for name, (had, of) in wrong.items()
                ),
                value=self.table.location,
                remedy=remedy,
            )

    def forgettable(self, before: int) -> str:
        """The condition on rows of events before this time (microseconds, exclusive)."""
        return f"{C.EVENT_TIME} < timestamp_micros({before}L)"

    def noted(self, time: int) -> dict[str, str]:
        """The properties that say that such rows may lack."""
        return {COMPLETE_FROM: str(latest(time, self.complete_from()))}

    def complete_from(self) -> int | None:
        """The event time from which on no row has been removed while its session stays; None: none has."""
        return None if (told := self.table.setting(COMPLETE_FROM)) is None else int(told)

    def forget(self, sessions: DataFrame, commit: Commit) -> None:
        """Remove the rows of these sessions, once."""
        self.table.remove(sessions.select(C.SESSION_ID), f"t.{C.SESSION_ID} = s.{C.SESSION_ID}", commit)

    def write(self, rows: DataFrame, manifest: Manifest, commit: Commit, *, adds_only: bool) -> None:
        """Add a run's rows, move those of sessions that were taken over, replace those of recomputed ones; once.

        A rebuild replaces all, and the columns: they are those of its rule.
        rows: what `memberships.event_sessions` or `session_updates` returns. adds_only: nothing is moved or replaced.
        """
        told = rows.withColumn(C.RUN_ID, F.lit(manifest.run_id))
        if manifest.mode == "rebuild":
            self.table.overwrite(told.where(F.col(KIND) == INSERT).drop(KIND, OLD_ID), commit, [])
            return
        columns = widened(self.table.schema, told.drop(KIND, OLD_ID).schema)  # aggregates may have come or gone
        adds = columns.simpleString() != self.table.schema.simpleString()  # structs may gain parts, too
        own = told_by(told, columns)
        if adds_only:
            self.table.append(own, commit, add_columns=adds)
            return
        beside = [told.schema[name] for name in (KIND, OLD_ID)]
        told = told_by(told, T.StructType([*columns.fields, *beside]))
        self.table.merge(
            told,
            f"t.{C.SESSION_ID} = s.{OLD_ID} AND s.{KIND} <> '{INSERT}'",
            commit,
            delete_when=f"s.{KIND} = '{REMOVE}'",
            insert_when=f"s.{KIND} = '{INSERT}'",
            update=(C.SESSION_ID, C.RUN_ID),
            add_columns=adds,
        )


def _clash(there: T.DataType, made: T.DataType) -> bool:
    """Whether values of one type do not go where the other is; of structs fields may come and go."""
    if not (isinstance(there, T.StructType) and isinstance(made, T.StructType)):
        return there.simpleString() != made.simpleString()
    types = {field.name.lower(): field.dataType for field in there.fields}
    return any(_clash(types[f.name.lower()], f.dataType) for f in made.fields if f.name.lower() in types)

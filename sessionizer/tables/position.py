"""Where a table of sessions or windows stands, as its history tells: the last manifest in force."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from sessionizer.lib import columns as C
from sessionizer.lib.errors import TableError
from sessionizer.tables.delta import Entry, Table
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.source import names_before

HARMLESS = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "COMPUTE STATISTICS"}


@dataclass(frozen=True)
class Position:
    """Where the table stands: its version, and the manifest in force (None: no run yet).

    restored: the version of the RESTORE that has brought the table back to it, so that later runs are undone.
    renamed: what runs have called sources which are called otherwise now, or whose name another of them has.
    """

    version: int
    manifest: Manifest | None
    restored: int | None = None
    renamed: frozenset[str] = frozenset()

    def called(self, ids: Mapping[str, str]) -> "Position":
        """The same by the names that the sources have now, which may be others of the same tables. ids: of these."""
        if self.manifest is None:
            return self
        names, then = names_before(self.manifest, ids), {name: of.id for name, of in self.manifest.consumed.items()}
        gone = {name for name in then if names.get(name) != name}
        renamed = frozenset(name for name in gone if name in names.values() or ids.get(name) in then.values())
        return replace(self, manifest=self.manifest.called(names, renamed), renamed=renamed)


class Log(Protocol):
    """A table's history, whoever reads it."""

    @property
    def version(self) -> int:
        """The latest version."""

    def history(self, limit: int | None = None) -> Iterator[Entry]:
        """Commits, newest first."""


def position_of(sessions: Log) -> Position:
    """The latest version and the last manifest in force: a RESTORE puts an older one in force again."""
    version = sessions.version
    manifest, restored = next(in_force(sessions, version))
    return Position(version, manifest, restored)


def in_force(sessions: Log, version: int) -> Iterator[tuple[Manifest | None, int | None]]:
    """The manifests that count as of a version, newest first, and the last RESTORE behind them; None at the end.

    Commits of upkeep repeat a manifest. They are no runs, and the manifest may be older than a run beside which
    they were made; only where the log no longer has any run the newest of them stands for the last one.
    """
    reach, found = version, False
    restored: int | None = None
    repeated: tuple[Manifest, int | None] | None = None
    for entry in sessions.history():
        manifest = Manifest.parse(entry.metadata)
        if entry.version > reach:
            if manifest is not None and repeated is not None and entry.operation not in HARMLESS:
                repeated = None if manifest.run_seq == repeated[0].run_seq else repeated  # which is undone
            continue
        if entry.operation == "RESTORE":
            reach, restored = restored_version(entry), entry.version if restored is None else restored
            if repeated is not None and reach < repeated[0].run_seq < entry.version:  # of a run that this undoes
                repeated = None
        elif manifest is not None and entry.operation in HARMLESS:
            repeated = repeated or (manifest, restored)
        elif manifest is not None:
            found = True
            yield manifest, restored
    if repeated is not None and not found:
        yield repeated
    yield None, restored


def changed_by_others(log: Log, since: int) -> bool:
    """Whether anything but runs and upkeep, a RESTORE for one, has changed rows after a version, or nobody knows."""
    later = [*log.history(log.version - since)]  # which ends where the log was cleaned up
    return len(later) < log.version - since or any(
        Manifest.parse(entry.metadata) is None and entry.operation not in HARMLESS for entry in later
    )


def counts_hold(table: Table, run: Manifest) -> bool:
    """Whether nobody else has changed rows since this run, or there is no such table any more, to be counted."""
    return not changed_by_others(table, run.run_seq) or f"{C.IS_FINAL}:boolean" not in table.schema.simpleString()


def is_other(table: Table, manifest: Manifest) -> bool:
    """Whether somebody has put another table in the place of the one of this run; by a name it may have the same id."""
    return manifest.home != table.id if manifest.home is not None else _is_replaced(table, manifest.run_seq)


def _is_replaced(log: Log, since: int) -> bool:
    """Whether that was done after a version, and no RESTORE has undone it."""
    reach = log.version
    for entry in log.history(log.version - since):
        if entry.version > reach:
            continue
        if entry.operation == "RESTORE":
            reach = restored_version(entry)
        if _replaces(entry):
            return True
    return False


def _replaces(entry: Entry) -> bool:
    """Whether somebody has made another table there by CREATE OR REPLACE; that of a rebuild is the same."""
    is_made = entry.operation.startswith(("CREATE OR REPLACE TABLE", "REPLACE TABLE"))
    return is_made and Manifest.parse(entry.metadata) is None


def check_is_its_own(table: Table, manifest: Manifest, name: str, rebuild: str) -> None:
    """Raise where the table is not the one of its last run."""
    if is_other(table, manifest):
        raise TableError(
            f"the {name} table has been replaced since its last run, which the tables beside it go by",
            value=table.location,
            remedy=f"a RESTORE to a version of before (DESCRIBE HISTORY tells) brings it back; or `{rebuild}`",
        )


def can_follow(table: Table, run_seq: int) -> bool:
    """Whether runs after this one, which a RESTORE has undone, were of the table that is there, and is not replaced."""
    later = [entry for entry in table.history(table.version - run_seq) if entry.operation not in HARMLESS]
    homes = {run.home for entry in later if (run := Manifest.parse(entry.metadata)) is not None}
    return not (homes - {None, table.id} or _was_replaced(later))


def check_can_follow(table: Table, run_seq: int, name: str, rebuild: str) -> None:
    """Raise where the tables beside it cannot take back what such runs have left."""
    if not can_follow(table, run_seq):
        raise TableError(
            f"{name} was restored to before it was replaced, and the tables beside it cannot follow there",
            value=table.location,
            remedy=f"a RESTORE to a version behind that (DESCRIBE HISTORY tells), or `{rebuild}`",
        )


def _was_replaced(later: list[Entry]) -> bool:
    """Whether another table lies there, or a run was of one: by a name it may have the same id.

    In: what came later, newest first.
    """
    replaced, is_other = dict[int, bool](), False  # by version
    for entry in reversed(later):
        if entry.operation == "RESTORE" and (version := entry.parameters.get("version")):
            before = [of for of in replaced if of <= int(version)]
            is_other = replaced[max(before)] if before else False
        is_other = is_other or _replaces(entry)
        if is_other and Manifest.parse(entry.metadata) is not None:
            return True
        replaced[entry.version] = is_other
    return is_other


def restored_version(entry: Entry) -> int:
    """The version that a RESTORE has brought back. Errors: TableError where its commit does not say."""
    if version := entry.parameters.get("version"):
        return int(version)
    raise TableError(
        "sessions was restored by timestamp, and its history does not say to which version",
        value=entry.parameters.get("timestamp"),
        remedy="restore it once more, by version: RESTORE … TO VERSION AS OF …",
    )

"""A Delta table: all that can be done with it, one storey on the other."""

from tables.delta.upkeep import Upkeep

# The methods of Table that write: all that a kill can fall between.
WRITES = (
    *("create", "create_if_missing", "change_setting", "change_settings"),
    *("append", "append_few", "overwrite", "replace", "merge", "restore", "delete", "update"),
    *("compact", "keep_removed", "vacuum", "checkpoint"),
)


class Table(Upkeep):
    """A Delta table at a path, a URL or under a catalog name.

    From the ground up: `place` (where, and its lock), `log` (what Delta knows at once), `read`, `write`, `upkeep`.
    """

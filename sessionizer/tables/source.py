"""What must hold of the source, whoever reads it, and what helps where it does not."""

from typing import TYPE_CHECKING

from sessionizer.lib.config import Config
from sessionizer.lib.config.key import parts_of
from sessionizer.lib.errors import SourceError
from sessionizer.tables.delta import CHANGE_FEED, Table

if TYPE_CHECKING:
    from sessionizer.tables.queries.local import LocalTable

MAKE_IT = "make it first, for example from files: `sessionizer ingest FILE… --format csv`"
ANEW = (
    "`sessionizer rebuild` makes all sessions anew from the source as it stands, `rebuild --windows` all sliding "
    "windows (before a first run set source.start: earliest)"
)


def named_by(config: Config, source: "Table | LocalTable") -> Config:
    """The config of this source: a key column that is called `user.id` as a whole comes before a field of that name."""
    is_open = any(isinstance(entry, str) and parts_of(entry) for entry in config.source.keys)
    return config.over(source.schema.names) if is_open and source.exists() else config


def require_source(table: "Table | LocalTable", config: Config, *, changes: bool = True) -> None:
    """Raise unless the source is there, and (changes) records its changes where these are read."""
    table.require(f"check the path, or {MAKE_IT}")
    if changes and config.source.changes == "feed" and table.setting(CHANGE_FEED) != "true":
        raise SourceError(
            "the source must record its changes, and its change data feed is off",
            value=table.location,
            remedy="`sessionizer init` turns it on (table property delta.enableChangeDataFeed); or set source.changes: "
            "appends, where rows are only added",
        )

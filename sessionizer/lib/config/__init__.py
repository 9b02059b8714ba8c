"""The config: what a sessions table is made from, and by which rule."""

from sessionizer.lib.config.aggregate import Aggregate
from sessionizer.lib.config.config import Config, json_schema
from sessionizer.lib.config.corrections import Policy, policies
from sessionizer.lib.config.key import MadeKey
from sessionizer.lib.config.outputs import Limits
from sessionizer.lib.config.sliding import Sliding
from sessionizer.lib.config.source import Dedupe, EventSource, Source
from sessionizer.lib.config.sources import events_of, field_of
from sessionizer.lib.config.stitch import Stitch
from sessionizer.lib.config.types import DynamicGap, StartTimestamp, StartVersion, database_of, location_kind

__all__ = [
    "Aggregate",
    "Config",
    "Dedupe",
    "DynamicGap",
    "EventSource",
    "Limits",
    "MadeKey",
    "Policy",
    "Sliding",
    "Source",
    "StartTimestamp",
    "StartVersion",
    "Stitch",
    "database_of",
    "events_of",
    "field_of",
    "json_schema",
    "location_kind",
    "policies",
]

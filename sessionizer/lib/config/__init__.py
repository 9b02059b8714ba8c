"""The config: what a sessions table is made from, and by which rule."""

from sessionizer.lib.config.aggregate import Aggregate
from sessionizer.lib.config.config import Config, json_schema
from sessionizer.lib.config.corrections import Policy, policies
from sessionizer.lib.config.key import MadeKey
from sessionizer.lib.config.outputs import Limits
from sessionizer.lib.config.sliding import Sliding
from sessionizer.lib.config.source import Dedupe, Source
from sessionizer.lib.config.types import DynamicGap, StartTimestamp, StartVersion, database_of, location_kind

__all__ = [
    "Aggregate",
    "Config",
    "Dedupe",
    "DynamicGap",
    "Limits",
    "MadeKey",
    "Policy",
    "Sliding",
    "Source",
    "StartTimestamp",
    "StartVersion",
    "database_of",
    "json_schema",
    "location_kind",
    "policies",
]

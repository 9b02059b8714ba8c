"""The config: what a sessions table is made from, and by which rule."""

from lib.config.aggregate import Aggregate
from lib.config.config import Config, json_schema
from lib.config.outputs import Limits
from lib.config.sliding import Sliding
from lib.config.source import Dedupe, Source
from lib.config.types import DynamicGap, StartTimestamp, StartVersion, location_kind

__all__ = [
    "Aggregate",
    "Config",
    "Dedupe",
    "DynamicGap",
    "Limits",
    "Sliding",
    "Source",
    "StartTimestamp",
    "StartVersion",
    "json_schema",
    "location_kind",
]

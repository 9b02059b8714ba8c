"""The config: what a sessions table is made from, and by which rule."""

from lib.config.aggregate import Aggregate
from lib.config.config import Config, json_schema
from lib.config.outputs import Limits, Outputs
from lib.config.sessions import SessionRule, Sessions
from lib.config.sliding import Sliding
from lib.config.source import Dedupe, Source
from lib.config.time import IdleTimeout, Time, Watermark
from lib.config.types import DynamicGap, StartTimestamp, StartVersion, location_kind

__all__ = [
    "Aggregate",
    "Config",
    "Dedupe",
    "DynamicGap",
    "IdleTimeout",
    "Limits",
    "Outputs",
    "SessionRule",
    "Sessions",
    "Sliding",
    "Source",
    "StartTimestamp",
    "StartVersion",
    "Time",
    "Watermark",
    "json_schema",
    "location_kind",
]

"""What a sliding window is: the part of the configuration that the pure steps need (SEMANTICS §10)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sessionizer.lib.config import Config, Sliding
from sessionizer.lib.durations import format_duration
from sessionizer.lib.errors import ConfigError
from sessionizer.lib.rule import NO_CONTENT, Rule


@dataclass(frozen=True)
class SlidingRule:
    """How events become sliding windows. All durations are microseconds.

    events: key, validity, watermark, policies and aggregates; its `allowed_lateness` is the grace, and times are
    truncated to its `time_unit`. difference: from the start of a window to its end; both ends are inclusive. sources:
    what a summary tells of these.
    """

    events: Rule
    difference: int
    sources: Mapping[str, object] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, config: Config) -> "SlidingRule":
        """The rule that a configuration file states. Errors: ConfigError where it has no `sliding`."""
        sliding = sliding_of(config)
        events = replace(
            Rule.of(config),
            gap=sliding.time_difference,
            allowed_lateness=sliding.grace,
            aggregates=tuple(sliding.aggregates),
            lateness=sliding.lateness,
            revive=False,
            max_duration=None,
            **NO_CONTENT,
            idle_after=None,
            idle_clock=Rule.idle_clock,
            time_unit=sliding.time_unit,
            tells_events=False,
            reach_back=sliding.time_difference + sliding.time_unit,
        )
        return cls(events, sliding.time_difference, config.source_summary())

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns."""
        return self.events.key

    @property
    def unit(self) -> int:
        """Times are whole multiples of it."""
        return self.events.time_unit

    @property
    def reach(self) -> int:
        """How far an event is felt: windows that it can change start and end at most this far from it."""
        return self.difference + self.unit

    def summary(self) -> dict[str, object]:
        """The fields that decide what a window row is; unset options absent."""
        events, scopes = self.events, self.events.watermark_per
        aggregates = sorted(events.aggregates, key=lambda aggregate: aggregate.name)
        return {
            **self.sources,
            "time_difference": format_duration(self.difference),
            "time_unit": format_duration(self.unit),
            **({"dedupe": events.dedupe.model_dump(mode="json")} if events.dedupe else {}),
            **({} if scopes == "table" else {"watermark_per": scopes if isinstance(scopes, str) else list(scopes)}),
            "aggregates": [a.model_dump(mode="json", exclude_defaults=True) for a in aggregates],
        }

    def fingerprint(self) -> str:
        """SHA-256 of `summary`: windows of different fingerprints do not belong in one table."""
        canonical = json.dumps(self.summary(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def sliding_of(config: Config) -> Sliding:
    """The `sliding` section. Errors: ConfigError where there is none."""
    if config.sliding is None:
        raise ConfigError(
            "the config has no sliding windows",
            remedy="add a section such as sliding: {table: warehouse/windows, time_difference: 10m, grace: 1h}",
        )
    return config.sliding

"""What a session is: the part of the configuration that the pure steps need."""

from dataclasses import dataclass
from typing import Literal

from lib.config import Aggregate, Config


@dataclass(frozen=True)
class Rule:
    """How events become sessions (SEMANTICS §2, §4, §6). All durations are microseconds."""

    key: tuple[str, ...]
    gap: int
    event_time: str = "event_time"
    where: str | None = None
    order_by: tuple[str, ...] = ()
    null_keys: Literal["reject", "group"] = "reject"
    gap_boundary: Literal["joins", "splits"] = "joins"
    watermark_from: Literal["max_event_time", "min_event_time"] = "max_event_time"
    watermark_delay: int = 0
    allowed_lateness: int = 24 * 3600 * 1_000_000
    max_future_skew: int = 3600 * 1_000_000
    aggregates: tuple[Aggregate, ...] = ()

    @classmethod
    def of(cls, config: Config) -> "Rule":
        """The rule that a configuration file states."""
        source, session, time = config.source, config.session, config.time
        return cls(
            key=tuple(source.key),
            gap=session.gap,
            event_time=source.event_time,
            where=source.where,
            order_by=tuple(source.order_by),
            null_keys=source.null_keys,
            gap_boundary=session.gap_boundary,
            watermark_from=time.watermark.from_,
            watermark_delay=time.watermark.delay,
            allowed_lateness=time.allowed_lateness,
            max_future_skew=time.max_future_skew,
            aggregates=tuple(config.aggregates),
        )

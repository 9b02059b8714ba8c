"""What the DAGs have to know of this deployment: variables of the environment, the same on every worker."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath
from typing import Any


@dataclass(frozen=True)
class Settings:
    """The settings of one sessions table.

    command: how `sessionizer` is started: its path, or `spark-submit … cli.py` for a cluster.
    config: the config file, an absolute path. events, sessions: the names or URIs of the two assets.
    maintain: more options of `sessionizer maintain`.
    """

    config: str
    command: tuple[str, ...] = ("sessionizer",)
    pool: str = "sessionizer"
    events: str = "sessionizer_events"
    sessions: str = "sessionizer_sessions"
    retries: int = 3
    retry_minutes: int = 1
    maintain: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Settings":
        """The settings in `SESSIONIZER_…` variables. Errors: ValueError for what cannot be right."""
        given: dict[str, Any] = {
            name: environment[variable] for variable, name in VARIABLES.items() if environment.get(variable)
        }
        for name in ("command", "maintain"):
            if name in given:
                given[name] = tuple(shlex.split(given[name]))
        for name in ("retries", "retry_minutes"):
            if name in given:
                given[name] = int(given[name])
        config = given.setdefault("config", "")
        if not PurePath(config).is_absolute():
            raise ValueError(
                f"SESSIONIZER_CONFIG must be the absolute path of a config file: got {config!r}. "
                "Set it in the environment of the scheduler, the DAG processor and every worker."
            )
        return cls(**given)

    def of_tasks(self) -> dict[str, Any]:
        """What the tasks of all DAGs have in common."""
        return {
            "pool": self.pool,
            "retries": self.retries,
            "retry_delay": timedelta(minutes=self.retry_minutes),
            "retry_exponential_backoff": True,
            "max_retry_delay": timedelta(minutes=30),
        }


VARIABLES = {
    "SESSIONIZER_CONFIG": "config",
    "SESSIONIZER_COMMAND": "command",
    "SESSIONIZER_POOL": "pool",
    "SESSIONIZER_EVENTS_ASSET": "events",
    "SESSIONIZER_SESSIONS_ASSET": "sessions",
    "SESSIONIZER_RETRIES": "retries",
    "SESSIONIZER_RETRY_MINUTES": "retry_minutes",
    "SESSIONIZER_MAINTAIN_OPTIONS": "maintain",
}

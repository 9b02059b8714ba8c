"""Sessionizer: sessions of events in a Delta Lake, incrementally and exactly.

In a notebook: `import sessionizer; s = sessionizer.open("sessionizer.yaml"); s.run(); s.sessions(key="alice")`.
"""

from typing import TYPE_CHECKING

from sessionizer.lib import __version__

if TYPE_CHECKING:
    from sessionizer.jobs.notebook import Project

__all__ = ["__version__", "open"]


def open(config: str = "sessionizer.yaml") -> "Project":
    """The tables of a config, to be run, asked and reported on; with the Spark session that runs, or one of its own.

    Errors: ConfigError where the file is not one.
    """
    from sessionizer.jobs.notebook import Project  # noqa: PLC0415  (heavy: it imports Spark)

    return Project.of(config)

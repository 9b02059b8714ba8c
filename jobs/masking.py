"""A config without its secrets: fit to be shown."""

import re
from typing import Any

from lib.config import Config, location_kind
from lib.errors import MASK, without_passwords

SECRET_NAME = re.compile(r"secret|passw|token|credential|signature|sas|account[._-]?key|access[._-]?key|\bkey\b", re.I)
_SECRET_VALUE = re.compile(r"(secret|passw\w*|pwd|token|sig|key)\s*[=:]|://[^/@\s]+@", re.I)


def masked(config: Config) -> dict[str, Any]:
    """The config with its defaults, without what is not set, and without secrets: fit to be shown.

    Of `spark:` every value is hidden whose name or content looks like a secret; of URLs, users and queries.
    """
    fields: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields["spark"] = {
        name: MASK if SECRET_NAME.search(name) or _SECRET_VALUE.search(value) else value
        for name, value in config.spark.items()
    }
    shown: dict[str, Any] = _with_plain_urls(fields)
    return {name: value for name, value in shown.items() if value not in ({}, [])}


def _with_plain_urls(fields: dict[str, Any]) -> dict[str, Any]:
    """Locations of tables without users and queries, at any depth."""
    shown: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            shown[name] = _with_plain_urls(value)
        elif isinstance(value, str) and location_kind(value) == "url":
            shown[name] = without_passwords(value).partition("?")[0]
        else:
            shown[name] = value
    return shown

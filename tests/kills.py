"""Deaths of a process: at a step that is named, and before or after any write to a table.

Within a process a death is what nothing catches; a process of its own can be killed for good (`shot`).
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NoReturn
from unittest.mock import patch

import pytest

from sessionizer.tables.delta import Table

# The methods of Table that write: all that a kill can fall between.
WRITES = (
    *("create", "create_if_missing", "change_setting", "change_settings"),
    *("append", "append_few", "overwrite", "replace", "merge", "remove", "bar", "restore", "delete", "update"),
    *("compact", "keep_removed", "vacuum", "checkpoint"),
)


class Killed(BaseException):
    """As a kill, nothing catches it."""


def die(*_: object) -> NoReturn:
    """Within the process."""
    raise Killed


def shot(*_: object) -> NoReturn:
    """The process itself, at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def shooting(pids: Iterable[int]) -> Callable[[], None]:
    """Other processes."""

    def shoot() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    return shoot


@contextmanager
def killed_at(owner: Any, step: str) -> Iterator[None]:
    """What happens inside comes to this step of `owner`, a class or a module, and dies instead of it."""
    with patch.object(owner, step, die), pytest.raises(Killed):
        yield


class each_write:  # noqa: N801
    """Inside it `before` and `after` are called around every write, with its name; none counts twice."""

    def __init__(self, before: Callable[[str], object], after: Callable[[str], object]) -> None:
        self.before, self.after, self.within = before, after, False
        self.patches = ExitStack()

    def _watched(self, name: str, write: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(write)
        def watched(*arguments: Any, **named: Any) -> Any:
            if self.within or named.get("dry_run"):  # a write that is part of another one
                return write(*arguments, **named)
            self.before(name)
            self.within = True
            try:
                result = write(*arguments, **named)
            finally:
                self.within = False
            self.after(name)
            return result

        return watched

    def __enter__(self) -> None:
        for name in WRITES:
            self.patches.enter_context(patch.object(Table, name, self._watched(name, getattr(Table, name))))

    def __exit__(self, *_: object) -> None:
        self.patches.close()


class killing(each_write):  # noqa: N801
    """Inside it the nth write to a table is the last thing that happens: just before it, or just after.

    A `death` that spares the process, but not others on which it counts, lets the write go on.
    """

    def __init__(self, nth: int, after: bool, death: Callable[[], object] = die) -> None:
        self.left, self.is_after, self.death = nth, after, death
        super().__init__(self._come, self._gone)

    def _come(self, _: str) -> None:
        self.left -= 1
        if not self.left and not self.is_after:
            self.death()

    def _gone(self, _: str) -> None:
        if not self.left and self.is_after:
            self.death()

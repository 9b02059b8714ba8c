"""A lock in an object store that speaks S3, where Delta's log alone does not keep two writers apart.

One object a table, written under conditions alone (`If-None-Match`, `If-Match`), so that of several who want it one
gets it. Who holds it shows every few seconds that it lives; who waits takes a holder that has shown nothing for long,
by its own watch, for dead. One that was only slow finds out when it ends, and starts over.
"""

import os
import secrets
import socket
from posixpath import normpath
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store
from pyspark.sql import SparkSession

from sessionizer.lib.errors import RunFailed
from sessionizer.tables.delta.commits import Superseded
from sessionizer.tables.places.object_store import ObjectStore, is_stored, refusal

SIGN_EVERY, DEAD_AFTER, LOOK_EVERY = 5.0, 30.0, 0.5  # seconds
FREE = b"free "
SWITCH = "SESSIONIZER_S3_LOCK"  # a variable; `off`: no lock
Content = tuple[str | None, bytes]


class Lease:
    """The lock of one table; whoever holds it may take it again."""

    def __init__(self, store: S3Store, name: str) -> None:
        self.name = name
        self._store = store
        self._who = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(4)}"
        self._signs = 0
        self._taken = 0
        self._is_checked = False
        self._tag: str | None = None
        self._is_over = Event()
        self._life = Thread()

    def __enter__(self) -> Self:
        """Errors: RunFailed where the store cannot be used, or does not know conditions; Superseded as at the end."""
        if self._taken and not self._life.is_alive():
            raise self._lost()
        if self._taken == 0:
            self._is_over = Event()
            try:
                self._take()
            except (BaseError, OSError) as error:
                raise _refused(error, self.name) from None
            self._life = Thread(target=self._live, daemon=True)
            self._life.start()
        self._taken += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Errors: Superseded where another has taken it meanwhile; RunFailed where the store is not reached."""
        self._taken -= 1
        if self._taken:
            return
        self._is_over.set()
        self._life.join()
        try:
            is_freed = self._write(FREE + self._sign(), self._tag)
        except (BaseError, OSError) as failed:
            if error is None:
                raise _refused(failed, self.name) from None
            return
        if not is_freed and error is None:
            raise self._lost()

    def _lost(self) -> Superseded:
        return Superseded(f"{self.name} was taken by another process, as this one had shown no sign of life")

    def _take(self) -> None:
        seen, since = self._read(), monotonic()
        while True:
            tag, content = seen
            if tag is None or content.startswith(FREE) or monotonic() - since > DEAD_AFTER:
                if self._write(self._sign(), tag):
                    break
            else:
                self._is_over.wait(LOOK_EVERY)
            if (found := self._read()) != seen:
                seen, since = found, monotonic()
        self._check_conditions()

    def _live(self) -> None:
        """Show now and then that we live; where the store is not reached, the next time."""
        while not self._is_over.wait(SIGN_EVERY):
            try:
                if not self._write(self._sign(), self._tag):
                    return
            except (BaseError, OSError):
                continue

    def _sign(self) -> bytes:
        self._signs += 1
        return f"{self._who} {self._signs}".encode()

    def _write(self, content: bytes, tag: str | None) -> bool:
        """Whether the object has this content now. tag: the content that it is to replace; None: there is no object."""
        try:
            self._tag = obstore.put(self._store, self.name, content, mode={"e_tag": tag} if tag else "create")["e_tag"]
        except (AlreadyExistsError, PreconditionError):
            found, there = self._read()
            if not self._is_own(there):
                return False
            self._tag = found  # it was written by us, now or the last time, and only the answer was lost
            return there == content or self._write(content, found)
        return True

    def _is_own(self, content: bytes) -> bool:
        return content.removeprefix(FREE).startswith(self._who.encode())

    def _check_conditions(self) -> None:
        """Raise a RunFailed unless the store refuses to make what is there, and to replace what it has not."""
        if self._is_checked:
            return
        try:
            obstore.put(self._store, self.name, b"", mode="create")
        except AlreadyExistsError:
            self._is_checked = True
        try:
            obstore.put(self._store, self.name, b"", mode={"e_tag": '"0"'})
        except PreconditionError:
            if self._is_checked:
                return
        raise RunFailed(
            "the object store does not keep two writers apart: it does not know If-None-Match and If-Match",
            value=self.name,
            remedy=f"take one that does, as Amazon's; or have one process write at a time, and set {SWITCH}=off",
        )

    def _read(self) -> Content:
        try:
            found = obstore.get(self._store, self.name)
            return found.meta["e_tag"], bytes(found.bytes())
        except FileNotFoundError:
            return None, b""


def lease(spark: SparkSession, folder: str, name: str) -> Lease | None:
    """The lock of this name below a folder, a URL.

    None: the folder is in no such store, Spark alone knows how to reach it, or the lock is switched off.
    """
    if not is_stored(folder) or os.environ.get(SWITCH) == "off":
        return None
    store = ObjectStore.of(dict(spark.conf.getAll), os.environ)
    place = urlsplit(folder)
    within = normpath(f"/{place.path}/{name}").strip("/")
    return None if store is None else Lease(store.writing(place.netloc), within)


def _refused(error: Exception, name: str) -> RunFailed:
    """What to say of it."""
    told = refusal(f"S3 error: {error}")
    return told or RunFailed(
        "the lock of a table in an object store could not be written",
        value=name,
        remedy="check the store and the right to write there, the next try starts over; where only Spark knows the way "
        f"to it, have one process write at a time, and set {SWITCH}=off",
    )

"""The lock of a table in an object store: one holder at a time, whoever dies or is slow."""

import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from urllib.parse import urlsplit

import pytest

from sessionizer.lib.errors import RunFailed
from sessionizer.tables.delta import lease as leases
from sessionizer.tables.delta.commits import Superseded
from sessionizer.tables.delta.lease import FREE, Lease
from sessionizer.tables.object_store import ObjectStore
from tests.processes import ROOT
from tests.s3.server import BUCKET, Server

HOLDS = """
import os, sys, time
from sessionizer.tables.delta.lease import Lease
from sessionizer.tables.object_store import ObjectStore
with Lease(ObjectStore.of({}, os.environ).writing(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "SIGN_EVERY", 0.1)
    monkeypatch.setattr(leases, "DEAD_AFTER", 1.0)
    monkeypatch.setattr(leases, "LOOK_EVERY", 0.02)


def lock(name: str) -> Lease:
    store = ObjectStore.of({}, os.environ)
    assert store is not None
    return Lease(store.writing(BUCKET), name)


def content(server: Server, name: str) -> bytes:
    return bytes(server.client.get_object(Bucket=BUCKET, Key=name)["Body"].read())


def test_one_at_a_time_holds_it_and_nobody_waits_for_ever(server: Server) -> None:
    inside, most, done = [0], [0], []

    def works(number: int) -> None:
        own = lock("many")
        for _ in range(5):
            with own:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                sleep(0.01)
                inside[0] -= 1
                done.append(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(works, range(4)))
    assert most == [1]
    assert sorted(done) == sorted(list(range(4)) * 5)
    assert content(server, "many").startswith(FREE)


def test_whoever_holds_it_may_take_it_again(server: Server) -> None:
    own = lock("again")
    with own, own:
        assert not content(server, "again").startswith(FREE)
    assert content(server, "again").startswith(FREE)


def test_a_holder_that_lives_is_waited_for_however_long(server: Server) -> None:
    first, second, began = lock("long"), lock("long"), threading.Event()
    ended: list[float] = []

    def waits() -> None:
        began.set()
        with second:
            ended.append(monotonic())

    with ThreadPoolExecutor(1) as pool:
        with first:
            waiting = pool.submit(waits)
            began.wait()
            sleep(3 * leases.DEAD_AFTER)
            freed = monotonic()
        waiting.result()
    assert ended[0] >= freed


def test_a_holder_that_was_killed_is_taken_for_dead(server: Server) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, BUCKET, "killed"], cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.wait()
    began = monotonic()
    with lock("killed"):
        assert leases.DEAD_AFTER <= monotonic() - began < 10 * leases.DEAD_AFTER


def test_a_holder_that_was_only_slow_is_told_that_it_has_lost_it(server: Server) -> None:
    slow, quick = lock("slow"), lock("slow")
    slow.__enter__()
    slow._is_over.set()  # as if the whole process stood still: no sign comes any more
    slow._life.join()
    with quick:
        assert content(server, "slow").startswith(quick._who.encode())
    with pytest.raises(Superseded, match="no sign of life"):
        slow.__exit__(None, None, None)
    with lock("slow"):
        pass


def test_an_error_amid_the_work_is_told_and_not_hidden_by_the_lock(server: Server) -> None:
    def fails() -> None:
        with lock("error"):
            server.client.put_object(Bucket=BUCKET, Key="error", Body=b"somebody else")
            raise ValueError("amid")

    with pytest.raises(ValueError, match="amid"):
        fails()


class _WithoutConditions(BaseHTTPRequestHandler):
    """Hands everything to the server, but for conditions."""

    server: "_Proxy"

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = {name: value for name, value in self.headers.items() if not name.lower().startswith("if-")}
        way = http.client.HTTPConnection(self.server.behind)
        way.request(self.command, self.path, body, kept)
        answer = way.getresponse()
        told = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() in ("etag", "content-type", "last-modified", "x-amz-request-id"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)
        way.close()

    do_GET = do_PUT = do_HEAD = _pass_on  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Proxy(ThreadingHTTPServer):
    behind: str


@contextmanager
def without_conditions(server: Server) -> Iterator[str]:
    with _Proxy(("127.0.0.1", 0), _WithoutConditions) as proxy:
        proxy.behind = urlsplit(server.url).netloc
        serving = threading.Thread(target=proxy.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{proxy.server_port}"
        proxy.shutdown()
        serving.join()


def test_a_store_that_knows_no_conditions_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with without_conditions(server) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(RunFailed, match="does not keep two writers apart"), lock("ignored"):
            pass


def test_a_bucket_that_is_not_there_is_a_sentence(server: Server) -> None:
    store = ObjectStore.of({}, os.environ)
    assert store is not None
    with pytest.raises(RunFailed, match="the bucket does not exist"), Lease(store.writing("nowhere"), "x"):
        pass


def test_a_store_that_is_not_there_is_a_sentence(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(RunFailed, match="the object store was not reached"), lock("nowhere"):
        pass

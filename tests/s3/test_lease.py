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
from sessionizer.tables.places.object_store import HADOOP, ObjectStore
from tests.processes import ROOT
from tests.s3.server import BUCKET, SECRET, Server

HOLDS = """
import os, sys, time
from sessionizer.tables.delta.lease import Lease
from sessionizer.tables.places.object_store import HADOOP, ObjectStore
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


class _Handed(BaseHTTPRequestHandler):
    """Hands everything to the server, but for some headers; and answers of the server back, but for some."""

    server: "_Proxy"

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = {name: value for name, value in self.headers.items() if name.lower() not in self.server.without}
        way = http.client.HTTPConnection(self.server.behind)
        way.request(self.command, self.path, body, kept)
        answer = way.getresponse()
        told = answer.read()
        way.close()
        if self.command == "PUT" and self.server.answers_lost:
            self.server.answers_lost -= 1
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() in ("etag", "content-type", "last-modified", "x-amz-request-id"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_PUT = do_HEAD = _pass_on  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Proxy(ThreadingHTTPServer):
    """without: names of headers that it leaves out. answers_lost: so many answers to the next PUTs."""

    behind: str
    without: tuple[str, ...] = ()
    answers_lost = 0


@contextmanager
def between(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Proxy]:
    """Inside it clients made by the variables come to this proxy."""
    with _Proxy(("127.0.0.1", 0), _Handed) as proxy:
        proxy.behind = urlsplit(server.url).netloc
        serving = threading.Thread(target=proxy.serve_forever)
        serving.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_port}")
        yield proxy
        proxy.shutdown()
        serving.join()


@pytest.mark.parametrize("without", [("if-none-match", "if-match"), ("if-none-match",), ("if-match",)])
def test_a_store_that_does_not_know_all_conditions_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...]
) -> None:
    with between(server, monkeypatch) as proxy:
        proxy.without = without
        with pytest.raises(RunFailed, match="does not keep two writers apart"), lock("-".join(without)):
            pass


def test_an_answer_that_is_lost_costs_nobody_the_lock(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    other = lock("lost")
    with between(server, monkeypatch) as proxy, ThreadPoolExecutor(1) as pool:
        with lock("lost") as own:
            for _ in range(3):
                proxy.answers_lost = 1
                sleep(5 * leases.SIGN_EVERY)
            assert proxy.answers_lost == 0
            waiting = pool.submit(other.__enter__)
            sleep(2 * leases.DEAD_AFTER)
            assert not waiting.done()
            assert content(server, "lost").startswith(own._who.encode())
        waiting.result()
        other.__exit__(None, None, None)


def test_whoever_has_lost_it_does_not_take_it_again_within(server: Server) -> None:
    slow = lock("within")
    slow.__enter__()
    server.client.put_object(Bucket=BUCKET, Key="within", Body=b"somebody else")
    slow._life.join()
    with pytest.raises(Superseded), slow:
        pass
    with pytest.raises(Superseded):
        slow.__exit__(None, None, None)


def test_who_asks_is_all_of_the_config_or_all_of_the_environment(server: Server) -> None:
    named = {f"{HADOOP}access.key": "AKIALAKE", f"{HADOOP}secret.key": SECRET}
    store = ObjectStore.of(named, {**os.environ, "AWS_SESSION_TOKEN": "of another key"})
    assert store is not None
    with Lease(store.writing(BUCKET), "who"):
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

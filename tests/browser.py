"""A real browser, off the network, asked by its debugging protocol: what a page loads, says and how wide it is."""

import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
WIDTHS, SCHEMES = (390, 1200), ("light", "dark")
PATIENCE = 120  # seconds
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--no-first-run", "--disable-background-networking"),
)
WIDE = """[document.documentElement.scrollWidth, document.documentElement.clientWidth,
 getComputedStyle(document.body).backgroundColor, document.body.innerText]"""


@dataclass
class Seen:
    """complaints: of the console. loaded: each address that was asked for. wide: pixels that stick out to the right."""

    complaints: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    wide: int = 0
    ground: str = ""
    text: str = ""
    picture: bytes = b""


class Tab:
    """Asks the browser, and gathers what happens meanwhile."""

    def __init__(self, ask: int, answer: int) -> None:
        self.ask, self.answer, self.rest, self.asked, self.session = ask, answer, b"", 0, ""
        self.events: list[dict[str, Any]] = []

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.asked += 1
        request = {"id": self.asked, "method": method, "params": parameters}
        os.write(self.ask, json.dumps(request | ({"sessionId": self.session} if self.session else {})).encode() + b"\0")
        while True:
            heard = self.next()
            if heard.get("id") == self.asked:
                assert "error" not in heard, (method, heard)
                return heard["result"]
            self.events.append(heard)

    def next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            part = os.read(self.answer, 1 << 20)
            assert part, "the browser has gone, or was too slow"
            self.rest += part
        first, _, self.rest = self.rest.partition(b"\0")
        return json.loads(first)

    def until(self, method: str) -> None:
        while not any(event["method"] == method for event in self.events):
            self.events.append(self.next())


@contextmanager
def tab(folder: Path) -> Iterator[Tab]:
    """An empty page of a browser with a profile of its own in this folder."""
    heard_by_it, ask = os.pipe()
    answer, told_by_it = os.pipe()
    command = ["bash", "-c", f'exec "$0" "$@" 3<&{heard_by_it} 4>&{told_by_it}', str(BROWSER), *OPTIONS]
    process = subprocess.Popen(
        [*command, f"--user-data-dir={folder / 'profile'}"],
        pass_fds=(heard_by_it, told_by_it),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(heard_by_it)
    os.close(told_by_it)
    impatient = threading.Timer(PATIENCE, process.kill)
    impatient.start()
    try:
        page = Tab(ask, answer)
        target = page("Target.createTarget", url="about:blank")["targetId"]
        page.session = page("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            page(f"{domain}.enable")
        yield page
    finally:
        impatient.cancel()
        process.kill()
        process.wait()
        os.close(ask)
        os.close(answer)


def looked_at(page: Tab, file: Path, width: int, scheme: str) -> Seen:
    """Opens a file at this width, in these colours."""
    page("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    page("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.events.clear()
    page("Page.navigate", url=file.as_uri())
    page.until("Page.loadEventFired")
    measured = page("Runtime.evaluate", expression=WIDE, returnByValue=True)["result"]["value"]
    full = page("Page.captureScreenshot", captureBeyondViewport=True)["data"]
    seen = Seen(wide=measured[0] - measured[1], ground=measured[2], text=measured[3], picture=base64.b64decode(full))
    for event in page.events:
        told = event["params"]
        if event["method"] == "Log.entryAdded":
            seen.complaints.append(f"{told['entry']['level']}: {told['entry']['text']}")
        elif event["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            seen.complaints.append(json.dumps(told)[:500])
        elif event["method"] == "Network.requestWillBeSent":
            seen.loaded.append(told["request"]["url"])
    return seen


def seen_in_every_way(file: Path, folder: Path) -> None:
    """On a phone and a desk, by day and by night: no complaint, nothing from the network, nothing sticks out."""
    grounds = set()
    with tab(folder) as page:
        for width in WIDTHS:
            for scheme in SCHEMES:
                seen = looked_at(page, file, width, scheme)
                (folder / f"{file.stem}-{width}-{scheme}.png").write_bytes(seen.picture)
                assert seen.complaints == []
                assert [url for url in seen.loaded if not url.startswith(("file:", "data:"))] == []
                assert seen.wide <= 0, f"{seen.wide} pixels stick out at {width}"
                grounds.add((scheme, seen.ground))
    assert len(grounds) == len(SCHEMES)
    assert len({ground for _, ground in grounds}) == len(SCHEMES), "dark is as light"

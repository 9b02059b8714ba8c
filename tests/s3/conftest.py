"""A server for all tests of this folder, and the usual variables that lead to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3.server import Server, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("s3") / "server.log") as found:
        yield found


@pytest.fixture(autouse=True)
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No profile of whoever runs the tests; and where a test takes the server, the way to it."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    if "server" in request.fixturenames:
        for name, value in request.getfixturevalue("server").environment.items():
            monkeypatch.setenv(name, value)

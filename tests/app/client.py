"""A client that calls the page without a network, as a browser on this machine would."""

import secrets
import time
import warnings

import pytest

pytest.importorskip("starlette", reason="the extra fairflows[app] is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of a successor of httpx, which is not needed
    from starlette.testclient import TestClient

from fairflows.app.server import Desk, make_app

PORT = 8000


class Page:
    """The page, its token, and a client."""

    def __init__(self, folder) -> None:
        self.token = secrets.token_urlsafe(24)
        self.desk = Desk(folder)
        self.client = TestClient(make_app(self.desk, self.token, PORT), base_url=f"http://127.0.0.1:{PORT}")

    def get(self, path, **options):
        return self.client.get(f"/{self.token}{path}", **options)

    def post(self, path, data=None, **options):
        return self.client.post(f"/{self.token}{path}", data=data, **options)

    def upload(self, name, content, check=None):
        """The answer to a file that is dropped."""
        where = "" if check is None else f"?check={check}"
        return self.client.post(f"/{self.token}/upload{where}", content=content, headers={"x-name": name})

    def work(self, name, content):
        """The address of a table that was dropped."""
        answer = self.upload(name, content)
        assert answer.status_code == 200, answer.text
        return answer.json()["next"].removeprefix(f"/{self.token}").removesuffix("/table")

    def shared(self, work, timeout=600):
        """Wait until a run has ended."""
        end = time.monotonic() + timeout
        while (found := self.get(f"{work}/progress").json())["state"] == "running":
            assert time.monotonic() < end
            time.sleep(0.05)
        return found

"""Requests and files that the page refuses, and what is left of it at the end."""

import gzip
import io
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from client import PORT

from fairflows.app import guard, private_folder
from fairflows.app.private_folder import private_folder as opened

ORIGIN = f"http://127.0.0.1:{PORT}"


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "", "[::1]:8000"])
def test_another_host_is_refused(page, host):
    """A name that was made to lead to this machine (DNS rebinding) reads nothing."""
    answer = page.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert page.token not in answer.text


@pytest.mark.parametrize("origin", ["http://evil.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1"])
def test_another_origin_is_refused(page, origin):
    files = {"content": b"a,b\n1,2\n", "headers": {"x-name": "a.csv", "origin": origin}}
    where = f"/{page.token}/upload"
    assert page.client.post(where, **files).status_code == 403
    assert page.desk.works == {}
    files["headers"]["origin"] = ORIGIN
    assert page.client.post(where, **files).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_on_another_page_is_refused(page, site):
    assert page.get("/", headers={"sec-fetch-site": site}).status_code == 403
    assert page.get("/", headers={"sec-fetch-site": "same-origin"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/adult", "/static/app.js", "/TOKEN", "/TOKEN2/", "//TOKEN/", "/%00/", "/é/"])
def test_a_missing_or_wrong_token_is_refused(page, path):
    wrong = page.token[:-1] + ("a" if page.token[-1] != "a" else "b")
    assert page.client.get(path.replace("TOKEN", wrong)).status_code == 403


@pytest.mark.parametrize(
    "path",
    ["/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/static/....//server.py",
     "/check/../../etc/passwd", "/..%2f..%2fetc/passwd/table", "/static//etc/passwd"],
)  # fmt: skip
def test_no_path_leads_out_of_the_page(page, path):
    answer = page.get(path)
    assert answer.status_code in (403, 404) or answer.url.path.startswith(f"/{page.token}/check/")
    assert "import" not in answer.text
    assert "root:" not in answer.text


def test_no_address_gives_a_model_or_a_key(page):
    """Routes read no files but the page's own."""
    from starlette.routing import Mount, Route

    def paths(routes, before=""):
        for route in routes:
            if isinstance(route, Route):
                yield before + route.path
            elif isinstance(route, Mount):
                yield from paths(route.routes, before + route.path) if route.routes else [before + route.path]

    found = sorted(path.removeprefix(f"/{page.token}") for path in paths(page.client.app.routes))
    assert found == [
        "/", "/adult", "/check", "/check/{check}", "/releases", "/static", "/upload", "/watch", "/watch/{result}",
        "/{work}/cancel", "/{work}/columns", "/{work}/columns", "/{work}/follows", "/{work}/plan", "/{work}/progress",
        "/{work}/release", "/{work}/result", "/{work}/sharing", "/{work}/table", "/{work}/table", "/{work}/target",
        "/{work}/target",
    ]  # fmt: skip


def test_the_policy_allows_the_page_itself_alone(page):
    for answer in (page.get("/"), page.get("/static/app.js"), page.client.get("/"), page.get("/nothing/table")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"<script>|<style|\son\w+=|\sstyle=", page.get("/").text)
    assert "//" not in re.sub(r"(?m)^//.*|\s// .*|http://www.w3.org/2000/svg", "", page.get("/static/app.js").text)


def test_a_large_upload_is_refused_before_it_is_read(page):
    read = []

    def body():
        for _ in range(3):
            read.append(1)
            yield b"x" * 1000

    headers = {"x-name": "a.csv", "content-length": str(10 * 2**30)}
    answer = page.client.post(f"/{page.token}/upload", content=body(), headers=headers)
    assert answer.status_code == 413
    assert list(page.desk.folder.iterdir()) == []


def test_a_size_of_thousands_of_digits_is_refused(page):
    """Python converts no such number, so that the page answered by an error of its own."""
    headers = {"x-name": "a.csv", "content-length": "9" * 5000}
    assert page.client.post(f"/{page.token}/upload", content=b"x", headers=headers).status_code == 413


@pytest.mark.parametrize(
    ("screen", "form"),
    [("columns", {"do": "{"}), ("columns", {"do": '{"merge_small": "x"}'}), ("columns", {"do": '{"cuts": 3}'}),
     ("columns", {"do": '{"roles": {"sex": []}}'}), ("columns", {"do": '{"a":' + "[" * 9999 + "]" * 9999 + "}"}),
     ("columns", {"rules found": "3"}), ("table", {"encoding": "\0"}), ("target", {"target": "nan"})],
)  # fmt: skip
def test_a_form_that_no_screen_makes_is_refused(page, screen, form):
    """They ended in errors of our own, and some of them left a table that no screen could show any more."""
    work = page.work("a.csv", b"age,sex\n30,f\n40,m\n")
    assert page.post(f"{work}/{screen}", form).status_code == 400
    assert page.get(f"{work}/plan?target=0.1").status_code == 400, "no column is sensitive yet"
    assert page.get(f"{work}/columns").status_code == 200


def test_a_request_about_the_whole_server_is_refused():
    """OPTIONS * has no path."""
    scope = {"type": "http", "path": "*", "headers": [(b"host", f"127.0.0.1:{PORT}".encode())]}
    assert guard.Guard(None, "token", PORT)._refused(scope)[0] == 403


def test_an_upload_that_does_not_state_its_size_is_cut_off(page, monkeypatch):
    monkeypatch.setattr(private_folder.receive, "__defaults__", (5_000,))
    answer = page.upload("a.csv", (b"x" * 1000 for _ in range(10)))
    assert answer.status_code == 400
    assert "more than 5,000 bytes" in answer.text
    assert list(page.desk.folder.iterdir()) == []


def parquet_of_zeros(rows):
    """Equal values, which take no bytes in the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    packed = io.BytesIO()
    pq.write_table(pa.table({"x": pa.array([0], pa.int8()).take(pa.array([0] * rows))}), packed)
    return packed.getvalue()


def zip_of_zeros():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b"\0" * 10_000_000)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.xlsx", zip_of_zeros()), ("a.csv.gz", gzip.compress(b"\0" * 10_000_000)), ("a.csv.zst", b"x"), ("a.xlsx", b"x"),
     ("a.parquet", b"PAR1PAR1"), ("a.parquet", parquet_of_zeros(1_500_000)), ("a.csv.gz", b"x"),
     ("model.pkl", b"x"), ("../../a", b"x"), ("", b"x")],
)  # fmt: skip
def test_a_file_that_unpacks_to_much_or_is_none_is_refused(name, content, page, monkeypatch):
    monkeypatch.setattr(private_folder.receive, "__defaults__", (1_000_000,))
    answer = page.upload(name, content)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert list(page.desk.folder.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../../evil.csv", "..%2f..%2fevil.csv", "/etc/evil.csv", "a%00b.csv", "evil.csv/../x.csv"]
)
def test_a_name_of_a_file_is_never_a_path(name, page):
    page.work(name, b"a,b\n1,2\n")
    inside = [path for path in page.desk.folder.rglob("*") if path.is_file()]
    assert [path.name for path in inside] == ["upload.csv"]
    assert not any("evil" in str(path) for path in inside)


def test_a_large_form_is_refused(page):
    work = page.work("a.csv", b"a,b\n1,2\n")
    assert page.post(f"{work}/table", content=b"x" * 5_000_000).status_code == 413


@pytest.mark.parametrize("target", ["", "x", "nan", "inf", "-1", "0.019", "1", "1e-400"])
def test_a_target_must_be_one_of_the_slider(target, page):
    work = page.work("a.csv", b"a,b\n" + b"1,2\n2,1\n" * 300)
    page.post(f"{work}/columns", {"role a": "sensitive"})
    assert page.post(f"{work}/target", {"target": target}).status_code == 400
    assert page.get(f"{work}/progress").json() == {"state": "none"}


def test_the_private_folder_goes_at_the_end_and_after_a_crash(tmp_path):
    left = tmp_path / "left"
    left.mkdir()
    (left / "upload.csv").write_text("private")
    with opened(tmp_path) as one, opened(tmp_path) as other:
        assert not left.exists()
        assert one.exists(), "another process is at work there"
        assert one != other
        assert one.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_no_folder_behind_a_link_is_touched(tmp_path):
    """A link in the place of what a crash left leads to a folder of the user's own."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "letter.txt").write_text("mine")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "left").symlink_to(tmp_path / "own")
    with opened(tmp_path / "app"):
        assert [path.name for path in (tmp_path / "own").iterdir()] == ["letter.txt"]


def test_the_command_serves_the_loopback_address_and_cleans_up(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "fairflows", "app", str(tmp_path / "a.csv"), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    address = re.search(r"http://127\.0\.0\.1:(\d+)/[\w-]{30,}/[\w-]+/table", process.stdout.readline())
    assert address
    listening = Path("/proc/net/tcp")
    if listening.is_file():
        port = f":{int(address[1]):04X} "
        assert [line.split()[1] for line in listening.read_text().splitlines() if port in line and " 0A " in line] == [
            f"0100007F{port.strip()}"
        ]
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert list((tmp_path / "fairflows" / "app").iterdir()) == [tmp_path / "fairflows" / "app" / "lock"]


@pytest.mark.slow
def test_ten_gigabytes_in_chunks_are_cut_off(tmp_path):
    """Through the real server: no more than the limit is ever written, and nothing of it is left."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "fairflows", "app", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    port, token = re.search(r"127\.0\.0\.1:(\d+)/([\w-]+)/", process.stdout.readline()).groups()
    block, sent, most = b"400000\r\n" + b"1" * 0x400000 + b"\r\n", 0, 0
    folder = next(path for path in (tmp_path / "fairflows" / "app").iterdir() if path.is_dir())
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        head = f"POST /{token}/upload HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Name: a.csv\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        try:
            while sent < 10 * 2**30:
                connection.sendall(block)
                sent += 0x400000
                most = max([most, *(path.stat().st_size for path in folder.rglob("upload*"))])
        except OSError:  # the server hangs up
            pass
    assert sent < 3 * 2**30
    assert most < 2.1 * 2**30
    for _ in range(100):
        if not list(folder.rglob("upload*")):
            break
        time.sleep(0.1)
    assert not list(folder.rglob("upload*"))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)


def test_the_limit_is_one(page):
    assert guard.MOST_BYTES == private_folder.MOST_BYTES == 2 * 2**30

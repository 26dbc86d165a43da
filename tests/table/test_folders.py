"""Files and folders appear whole or not at all: with links, with several writers of a file, and when one is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairflows import DataError
from fairflows.table.folders import check_file, check_folder, locked, new_file, new_folder, settle_folder


def fill(folder, text):
    for name in ("a", "b"):
        (folder / name).write_text(text)


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_folder_is_written_twice_through_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").mkdir()
    link = tmp_path / "home" / "out"
    link.symlink_to(tmp_path / "disk" / "results")  # which is not there yet
    for text in ("one", "two"):
        check_folder(link)
        with new_folder(link) as side:
            fill(side, text)
        assert link.is_symlink()
        assert contents(tmp_path / "disk" / "results") == {"a": text, "b": text}
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["results"]
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["out"]


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(DataError, match="is a folder or a device, where a file"):
            check_file(tmp_path / name)
    (tmp_path / "to pipe").symlink_to(tmp_path / "pipe")
    for name in ("to pipe", "pipe/below/out"):
        with pytest.raises(DataError, match="is a file, where a folder"):
            check_folder(tmp_path / name)


def test_threads_that_write_one_file_at_once_each_write_a_whole_one(tmp_path):
    target, all_are_writing = tmp_path / "file", threading.Barrier(8)

    def write(i):
        with new_file(target) as side:
            side.write_text(str(i) * 1000)
            all_are_writing.wait()
            side.write_text(str(i) * 100_000)
        return target.read_text()

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(write, range(8)))
    assert all(len(text) == 100_000 and len(set(text)) == 1 for text in seen)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_lets_one_at_a_time_write_and_leaves_nothing(tmp_path):
    target, counted = tmp_path / "file", []

    def write(i):
        with locked(target), locked(target):
            before = len(counted)
            time.sleep(0.01)
            counted.append(i)
            return before

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(write, range(12))) == list(range(12))
    with locked(target), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locked(target, wait=False).__enter__)
        assert "another process is writing it" in str(waiting.exception())
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    code = "from pathlib import Path; import os, sys\nfrom fairflows.table.folders import locked\n"
    code += "with locked(Path(sys.argv[1])):\n    os.kill(os.getpid(), 9)\n"
    assert in_another_process(code, tmp_path / "file").wait() == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".file.lock"]
    with locked(tmp_path / "file", wait=False):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_a_full_disk_is_named_with_the_target(new, tmp_path):
    with pytest.raises(DataError, match=r"out: cannot be written: No space left on device\."), new(tmp_path / "out"):
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_folder_that_cannot_take_its_place_leaves_the_old_one_there(error, tmp_path, monkeypatch):
    target, rename = tmp_path / "folder", Path.rename
    with new_folder(target) as side:
        fill(side, "old")

    def failing(path, name):
        if ".partial-" in path.name:
            raise error
        return rename(path, name)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises((DataError, KeyboardInterrupt)), new_folder(target) as side:
        fill(side, "new")
    assert contents(target) == {"a": "old", "b": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def in_another_process(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])


KILLED = """
import os, signal, sys
from pathlib import Path
from fairflows.table import folders

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

target, moment = Path(sys.argv[1]), sys.argv[2]
rename, moves = Path.rename, []

def dying(folder, name):
    moves.append(name)
    if moment == f"before rename {len(moves)}":
        die()
    return rename(folder, name)

Path.rename = dying
with folders.new_folder(target) as side:
    (side / "a").write_text("new")
    if moment == "half way":
        die()
    (side / "b").write_text("new")
"""


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        ("half way", "old"),
        ("before rename 1", "old"),  # of the old folder
        ("before rename 2", "old"),  # of the new one: the old one is put back
    ],
)
def test_a_killed_writer_leaves_the_old_folder_or_the_new_one(moment, left, tmp_path):
    target = tmp_path / "folder"
    with new_folder(target) as side:
        fill(side, "old")
    assert in_another_process(KILLED, target, moment).wait() == -signal.SIGKILL
    settle_folder(target)  # as `load` does first
    assert contents(target) == {"a": left, "b": left}
    with new_folder(target) as side:
        fill(side, "newest")
    assert contents(target) == {"a": "newest", "b": "newest"}
    assert not (tmp_path / ".folder.previous").exists()


def test_a_killed_writer_of_a_file_leaves_the_old_one(tmp_path):
    target = tmp_path / "file"
    target.write_text("old")
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom fairflows.table.folders import new_file\n"
        "with new_file(Path(sys.argv[1])) as side:\n    side.write_text('ne')\n    os.kill(os.getpid(), 9)\n"
    )
    assert in_another_process(code, target).wait() == -signal.SIGKILL
    assert target.read_text() == "old"
    with new_file(target) as side:
        side.write_text("new")
    assert target.read_text() == "new"

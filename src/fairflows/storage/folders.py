"""Files and folders that appear whole or not at all: written to the side, then renamed into place."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairflows.exceptions import DataError

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux's renameat2


def check_file(target: Path, *sources: Path | None) -> None:
    """Refuse a file that could not be written, or that is one of those to be read: for before the work is done."""
    if not target.parent.is_dir():
        raise DataError(f"{target}: there is no folder {target.parent}.")
    if target.is_dir():
        raise DataError(f"{target}: is a folder, where a file is to be written.")
    _check_writable(target, target.parent)
    for source in sources:
        if source is not None and source.exists() and target.exists() and target.samefile(source):
            raise DataError(f"{target}: is the file that is read ({source}), and would be lost; write to another one.")


def check_folder(target: Path) -> None:
    """Refuse a folder that could not be written: for before the work is done."""
    target = Path(os.path.abspath(target))
    if target.exists() and not target.is_dir():
        raise DataError(f"{target}: is a file, where a folder is to be written.")
    above = next(folder for folder in target.parents if folder.exists())
    if not above.is_dir():
        raise DataError(f"{target}: cannot be written: {above} is a file.")
    _check_writable(target, above)


def refuse_other_files(folder: Path, names: Collection[str]) -> None:
    """Refuse to replace a folder that holds anything but files of these names."""
    leftover = re.compile(r"\.(.+)\.(partial-.*|previous)")
    for path in sorted(folder.iterdir()):
        found = leftover.fullmatch(path.name)
        if (found[1] if found else path.name) not in names:
            raise DataError(f"{folder}: holds {path.name!r}, which fairflows did not write; choose another folder.")


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A path to write to; when the block ends well the file takes its place at `target`, else it is gone.

    A process that is killed in between leaves a hidden file beside the target, and never a partial target.
    """
    target = Path(target)
    check_file(target)
    _remove_leftovers(target)
    side = target.parent / _side_name(target, "0")
    try:
        yield side
        _sync(side)
        os.replace(side, target)
        _sync(target.parent)
    finally:
        side.unlink(missing_ok=True)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A private folder (0700) to fill; when the block ends well it takes the place of `target`, else it is gone."""
    target = Path(os.path.abspath(target))
    check_folder(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror}.") from None
    _remove_leftovers(target)
    side = Path(tempfile.mkdtemp(prefix=_side_name(target, ""), dir=target.parent))  # mkdtemp makes it 0700
    try:
        yield side
        for path in side.rglob("*"):
            _sync(path)
        _take_place(side, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(side, ignore_errors=True)


@contextmanager
def side_folder(target: Path) -> Iterator[Path]:
    """A private folder beside `target` for the time of the block."""
    folder = Path(tempfile.mkdtemp(prefix=_side_name(target, ""), dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settle_folder(target: Path) -> None:
    """Put the old folder back, where a process without an atomic exchange was killed between its two renames."""
    previous = _previous(Path(target))
    if not Path(target).exists() and previous.is_dir():
        previous.rename(target)


def _take_place(side: Path, target: Path) -> None:
    settle_folder(target)
    if not target.exists():
        side.rename(target)
    elif not _exchange(side, target):
        previous = _previous(target)
        shutil.rmtree(previous, ignore_errors=True)
        target.rename(previous)
        side.rename(target)
        shutil.rmtree(previous, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


def _check_writable(target: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"{target}: cannot be written: no permission to write to {folder}.")


def _previous(target: Path) -> Path:
    return target.parent / f".{target.name}.previous"


def _side_name(target: Path, suffix: str) -> str:
    return f".{target.name}.partial-{os.getpid()}-{suffix}"


def _remove_leftovers(target: Path) -> None:
    """What killed processes left beside the target; what a living one is writing stays."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.partial-(\d+)-.*")
    for path in target.parent.iterdir():
        found = pattern.fullmatch(path.name)
        if found and not _is_running(int(found[1])):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs, and is somebody else's
        return True
    return True


def _sync(path: Path) -> None:
    """Have the system write it to disk: a rename must not overtake the contents."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # some systems do not open folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

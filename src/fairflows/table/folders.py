"""Files and folders that appear whole or not at all: written to the side, then renamed into place.

Every writer has a side file or folder of its own, so that of several at once the last one wins, and each is whole.
Where a path is a link, what it leads to is written, and the link stays.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairflows.exceptions import DataError

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux's renameat2


def check_file(target: Path, *sources: Path | None) -> None:
    """Refuse a file that could not be written, or that is one of those to be read: for before the work is done."""
    folder = _without_links(target).parent if target.is_symlink() else target.parent
    if not folder.is_dir():
        raise DataError(f"{target}: there is no folder {folder}.")
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "a device or a pipe"
        raise DataError(f"{target}: is {what}, where a file is to be written.")
    _check_writable(target, folder)
    for source in sources:
        if source is not None and source.exists() and target.exists() and target.samefile(source):
            raise DataError(f"{target}: is the file that is read ({source}), and would be lost; write to another one.")


def check_folder(target: Path) -> None:
    """Refuse a folder that could not be written: for before the work is done."""
    target = _without_links(target)
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
    check_file(target)
    target = _without_links(target)
    _remove_leftovers(target)
    side = target.parent / _side_name(target, secrets.token_hex(8))
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
    check_folder(target)
    target = _without_links(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror}.") from None
    _remove_leftovers(target)
    side = Path(tempfile.mkdtemp(prefix=_side_name(target, ""), dir=target.parent))  # mkdtemp makes it 0700
    try:
        yield side
        for path in (side, *side.rglob("*")):
            _sync(path)
        _take_place(side, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(side, ignore_errors=True)


def write_private(path: Path, data: bytes) -> None:
    """Write a new file that its owner alone can read (0600), from its first moment."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
        stream.write(data)


@contextmanager
def side_folder(target: Path) -> Iterator[Path]:
    """A private folder beside `target` for the time of the block."""
    target = _without_links(target)
    folder = Path(tempfile.mkdtemp(prefix=_side_name(target, ""), dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settle_folder(target: Path) -> None:
    """Put the old folder back, where a process without an atomic exchange was killed between its two renames."""
    target = _without_links(target)
    previous = _previous(target)
    if not target.exists() and previous.is_dir():
        previous.rename(target)


def _take_place(side: Path, target: Path) -> None:
    settle_folder(target)
    try:
        side.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    else:
        return
    if not _exchange(side, target):
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


def _without_links(path: Path) -> Path:
    """The path that a path leads to: renaming something to a link would replace the link."""
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise DataError(f"{path}: is a link that leads back to itself.")
    return real


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
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


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

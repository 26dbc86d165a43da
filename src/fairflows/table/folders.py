"""Write files and folders that appear whole or not at all: beside the target first, then renamed into place.

Every writer has a side file or folder of its own, so that the last of several writers wins, and each result is whole.
If a path is a link, its target is written, and the link stays. A process that is killed leaves a hidden file or private
folder beside the target, never a partial target; the next writer removes it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairflows.exceptions import DataError

_MOST_TRIES = 100  # at a name that other writers are renaming too


def check_file(target: Path, *sources: Path | None) -> None:
    """Raise before the work is done if a file cannot be written, or is one of the sources to be read."""
    folder = _real(target).parent
    if not folder.is_dir():
        raise DataError(f"{target}: there is no folder {target.parent}.")
    if target.exists() and not target.is_file():
        raise DataError(f"{target}: is a folder or a device, where a file is to be written.")
    _check_writable(target, folder)
    for source in sources:
        if source is not None and source.exists() and target.exists() and target.samefile(source):
            raise DataError(f"{target}: is the file that is read ({source}), and would be lost; write to another one.")


def check_folder(target: Path) -> None:
    """Raise before the work is done if a folder cannot be written."""
    target = _real(target)
    # One question to the system: another writer may move the folder between two.
    found = ((folder, _mode(folder)) for folder in (target, *target.parents))
    above, mode = next((folder, mode) for folder, mode in found if mode is not None)
    if not stat.S_ISDIR(mode):
        raise DataError(f"{above}: is a file, where a folder is to be written.")
    _check_writable(target, above if above != target else above.parent)


def _mode(path: Path) -> int | None:
    """Return the kind and the permissions of a file or folder; None where there is none."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def refuse_other_files(folder: Path, names: Collection[str]) -> None:
    """Raise if a folder to be replaced holds other files than these and the remains of killed writers."""
    leftover = re.compile(r"\.(.+)\.(partial-.*|previous)")
    for path in sorted(folder.iterdir()):
        found = leftover.fullmatch(path.name)
        if (found[1] if found else path.name) not in names:
            raise DataError(f"{folder}: holds {path.name!r}, which fairflows did not write; choose another folder.")


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to. The file takes its place at `target` if the block ends well, else it is removed."""
    check_file(target)
    target = _real(target)
    _remove_leftovers(target)
    side = target.parent / f"{_side_name(target)}{secrets.token_hex(8)}"
    try:
        yield side
        _sync(side)
        os.replace(side, target)
        _sync(target.parent)
    finally:
        side.unlink(missing_ok=True)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a private folder (0700) to fill. It takes the place of `target` if the block ends well."""
    check_folder(target)
    target = _real(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    with side_folder(target) as side:
        yield side
        for path in (side, *side.rglob("*")):
            _sync(path)
        _take_place(side, target)
        _sync(target.parent)


@contextmanager
def side_folder(target: Path) -> Iterator[Path]:
    """Yield a private folder beside `target` for the time of the block."""
    target = _real(target)
    folder = Path(tempfile.mkdtemp(prefix=_side_name(target), dir=target.parent))  # mkdtemp makes it 0700
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_private(path: Path, data: bytes) -> None:
    """Write a new file that its owner alone can read (0600), from its first moment."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
        stream.write(data)


def settle_folder(target: Path) -> None:
    """Put the old folder back if a process was killed between its two renames."""
    target = _real(target)
    if not target.exists() and _previous(target).is_dir():
        _rename(_previous(target), target)


def _take_place(side: Path, target: Path) -> None:
    """Move the old folder aside and the new one into its place; again, if another writer came in between."""
    settle_folder(target)
    previous = _previous(target)
    for _ in range(_MOST_TRIES):
        if _rename(side, target):
            shutil.rmtree(previous, ignore_errors=True)
            return
        if not _rename(target, previous):
            shutil.rmtree(previous, ignore_errors=True)
    raise DataError(f"{target}: cannot be written: other processes write to it all the time.")


def _rename(folder: Path, name: Path) -> bool:
    """Rename a folder. Return False if another folder is in the way, or another writer was faster."""
    try:
        folder.rename(name)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            return False
        raise
    return True


def _real(path: Path) -> Path:
    """Return the path that a path leads to: renaming something to a link would replace the link."""
    return Path(os.path.realpath(path))


def _check_writable(target: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"{target}: cannot be written: no permission to write to {folder}.")


def _previous(target: Path) -> Path:
    return target.parent / f".{target.name}.previous"


def _side_name(target: Path) -> str:
    return f".{target.name}.partial-{os.getpid()}-"


def _remove_leftovers(target: Path) -> None:
    """Remove the side files and folders that killed processes left; those of running processes stay."""
    leftover = re.compile(rf"\.{re.escape(target.name)}\.partial-(\d+)-.*")
    for path in target.parent.iterdir():
        found = leftover.fullmatch(path.name)
        if found and not _is_running(int(found[1])):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        pass
    return True


def _sync(path: Path) -> None:
    """Have the system write a file to disk: a rename must not overtake the contents."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # some systems do not open folders
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

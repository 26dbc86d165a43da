"""Write files and folders that appear whole or not at all: beside the target first, then renamed into place.

If a path is a link, its target is written, and the link stays. A process that is killed leaves a hidden file or private
folder (``.NAME.partial-…``, ``.NAME.lock``) beside the target, never a partial target.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fairflows.exceptions import DataError

_held: dict[Path, int] = {}  # locks that are held, and the thread that holds each


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
    above = next(folder for folder in (target, *target.parents) if folder.exists())
    if not above.is_dir():
        raise DataError(f"{above}: is a file, where a folder is to be written.")
    _check_writable(target, above if above != target else above.parent)


def refuse_other_files(folder: Path, names: Collection[str]) -> None:
    """Raise if a folder to be replaced holds other files than these and the remains of killed writers."""
    for path in sorted(folder.iterdir()):
        is_remains = path.name.startswith(".") and (".partial-" in path.name or path.name.endswith(".lock"))
        if path.name not in names and not is_remains:
            raise DataError(f"{folder}: holds {path.name!r}, which fairflows did not write; choose another folder.")


@contextmanager
def locked(target: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep other processes and threads from writing a file or folder for the time of the block.

    Within the block, the same thread may lock the target again. Where another one holds the lock, wait, or raise.
    """
    path = _real(target).parent / f".{_real(target).name}.lock"
    if _held.get(path) == threading.get_ident():
        yield
        return
    file = _open_locked(path, target, wait)
    _held[path] = threading.get_ident()
    try:
        yield
    finally:
        del _held[path]
        path.unlink(missing_ok=True)
        os.close(file)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """Yield a path to write to. The file takes its place at `target` if the block ends well, else it is removed."""
    check_file(target)
    real = _real(target)
    side = real.parent / f"{_side_name(real)}{secrets.token_hex(8)}"
    try:
        with _named_errors(target):
            yield side
            _sync(side)
            os.replace(side, real)
            _sync(real.parent)
    finally:
        side.unlink(missing_ok=True)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a private folder (0700) to fill. It takes the place of `target` if the block ends well."""
    check_folder(target)
    real = _real(target)
    with _named_errors(target):
        real.parent.mkdir(parents=True, exist_ok=True)
        with side_folder(real) as side:
            yield side
            for path in (side, *side.rglob("*")):
                _sync(path)
            _take_place(side, real)
            _sync(real.parent)


@contextmanager
def side_folder(target: Path) -> Iterator[Path]:
    """Yield a private folder beside `target` for the time of the block."""
    real = _real(target)
    with _named_errors(target):
        folder = Path(tempfile.mkdtemp(prefix=_side_name(real), dir=real.parent))  # mkdtemp makes it 0700
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
        _previous(target).rename(target)


def _open_locked(path: Path, target: Path, wait: bool) -> int:
    """Open and lock a file that stands for the right to write a target; return its descriptor."""
    import fcntl  # which Windows lacks

    while True:
        with _named_errors(target):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        is_mine = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_mine = path.exists() and os.path.samestat(os.fstat(file), os.stat(path))  # else it was removed meanwhile
        except BlockingIOError:
            raise DataError(f"{target}: another process is writing it; wait for it, or choose another place.") from None
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DataError(
                f"{target}: cannot be locked ({error.strerror}): choose a place on another disk."
            ) from error
        finally:
            if not is_mine:
                os.close(file)
        if is_mine:
            return file


@contextmanager
def _named_errors(target: Path) -> Iterator[None]:
    """Turn errors of the system while a target is written into a `DataError` that names it."""
    try:
        yield
    except (OSError, DataError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__  # of a file in a folder that is written
        if not isinstance(cause, OSError):
            raise
        reason = os.strerror(cause.errno) if cause.errno else " ".join(str(cause).split())
        raise DataError(f"{target}: cannot be written: {reason}.") from cause


def _take_place(side: Path, target: Path) -> None:
    """Move the old folder aside and the new one into its place."""
    settle_folder(target)
    previous = _previous(target)
    shutil.rmtree(previous, ignore_errors=True)
    if target.exists():
        target.rename(previous)
    try:
        side.rename(target)
    except BaseException:  # also an interruption
        settle_folder(target)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def _real(path: Path) -> Path:
    """Return the path that a path leads to: renaming something to a link would replace the link."""
    return Path(os.path.realpath(path))


def _check_writable(target: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"{target}: cannot be written: no permission to write to {folder}.")


def _previous(target: Path) -> Path:
    return target.parent / f".{target.name}.previous"


def _side_name(target: Path) -> str:
    return f".{target.name}.partial-"


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

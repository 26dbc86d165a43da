"""The private folder for uploads: it is removed at the end, and after a crash when the page is started again."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import pyarrow.parquet as pq
from filelock import FileLock

from fairflows.exceptions import DataError
from fairflows.table.reading import kind_of

MOST_BYTES = 2 * 2**30
"""The largest upload, before and after it is unpacked."""

_LOCK, _BLOCK = "lock", 2**22


@contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder that only the user may read; remove it at the end, with those of processes that have ended."""
    parent = parent or platformdirs.user_cache_path("fairflows", appauthor=False) / "app"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(parent / _LOCK):  # no other process removes the folder before it is held
        for left in parent.iterdir():
            if left.is_symlink() or not left.is_dir():
                continue  # it leads to a folder that is not ours
            try:
                with FileLock(left / _LOCK).acquire(timeout=0):
                    pass
            except OSError:
                continue  # its process is at work, or another user made it
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=parent))  # readable by the user alone
        held = FileLock(folder / _LOCK)
        held.acquire()
    try:
        yield folder
    finally:
        held.release()
        shutil.rmtree(folder, ignore_errors=True)


async def receive(blocks: AsyncIterator[bytes], name: str, folder: Path, most: int = MOST_BYTES) -> Path:
    """Write an upload under a name of our own; of the name that came with it, the suffix counts alone."""
    if name.lower().endswith(".json"):
        suffix = ".json"
    else:
        kind_of(Path(name))  # raises where the suffix is of no table
        packed = "".join(Path(name).suffixes[-2:]).lower()
        suffix = packed if packed.startswith((".csv.", ".tsv.", ".txt.", ".data.")) else Path(name).suffix.lower()
    path = Path(tempfile.mkdtemp(dir=folder)) / f"upload{suffix}"
    try:
        with path.open("wb") as file:
            async for block in blocks:
                file.write(block)
                if file.tell() > most:
                    raise DataError(f"The file has more than {most:,} bytes, the most that this page takes.")
        _refuse_bombs(path, most)
    except BaseException:
        shutil.rmtree(path.parent, ignore_errors=True)
        raise
    return path


def _refuse_bombs(path: Path, most: int) -> None:
    """Raise where a file becomes too large when it is unpacked."""
    try:
        if _unpacked_bytes(path, most) <= most:
            return
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile) as error:
        raise DataError(f"The file is damaged: {error}") from None
    raise DataError(f"Unpacked, the file has more than {most:,} bytes, the most that this page takes.")


def _unpacked_bytes(path: Path, most: int) -> int:
    if path.suffix in (".xlsx", ".xlsm"):
        with zipfile.ZipFile(path) as archive:
            return sum(part.file_size for part in archive.infolist())
    if path.suffix in (".parquet", ".pq"):
        found = pq.read_metadata(path)
        n_bytes = sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))
        return max(n_bytes, found.num_rows * found.num_columns)  # equal values take no bytes before they are read
    if path.suffix in (".bz2", ".zst", ".lz4"):
        raise DataError("This page takes CSV files plain, or compressed by gzip (.csv.gz).")
    n_bytes = 0
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            while n_bytes <= most and (block := file.read(_BLOCK)):
                n_bytes += len(block)
    return n_bytes

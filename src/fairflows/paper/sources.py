"""Where a published file comes from: the folder that FAIRFLOWS_DATA names, else its publisher; checked by SHA-256."""

from __future__ import annotations

import hashlib
import lzma
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fairflows.exceptions import DataError

VARIABLE = "FAIRFLOWS_DATA"


@dataclass(frozen=True)
class Source:
    """A published file.

    Parameters
    ----------
    name : str
        The publisher's file name.
    folder : str
        The sub-folder of FAIRFLOWS_DATA that it may lie in; the folder itself is searched first.
    sha256 : tuple of str
        The checksums it may have, of the bytes after decompression; none where nobody published one.
    url : str, optional
        Where the publisher serves it, as it is or inside a zip archive.
    """

    name: str
    folder: str
    sha256: tuple[str, ...] = ()
    url: str | None = None

    def find(self) -> Path | None:
        """The file, or its ``.xz``, in the folder that FAIRFLOWS_DATA names; None when it is not there."""
        root = os.environ.get(VARIABLE)
        if not root:
            return None
        places = (Path(root, *within, self.name + end) for within in ((), (self.folder,)) for end in ("", ".xz"))
        return next((path for path in places if path.is_file()), None)

    def whereabouts(self) -> str | None:
        """Where the file would be read from, in words; None when it is neither here nor published."""
        if path := self.find():
            return str(path)
        if self.url is None:
            return None
        return str(self._cached) if self._cached.is_file() else f"download from {self.url}"

    def read(self) -> bytes:
        """The file's bytes, decompressed and checked.

        Raises
        ------
        DataError
            The file cannot be found or downloaded, cannot be unpacked, or is not the published one.
        """
        path = self.find() or self._download()
        data = path.read_bytes()
        if path.suffix == ".xz":
            data = unpack(data, str(path))
        self._check(data, str(path))
        return data

    def _check(self, data: bytes, origin: str) -> None:
        found = hashlib.sha256(data).hexdigest()
        if self.sha256 and found not in self.sha256:
            raise DataError(
                f"{origin}: the checksum (SHA-256 of the unpacked bytes) must be {' or '.join(self.sha256)}; found "
                f"{found}. The file is damaged, or another version of it: download it again."
            )

    @property
    def _cached(self) -> Path:
        import pooch

        return Path(pooch.os_cache("fairflows"), self.name)

    def _download(self) -> Path:
        """The file in the user's cache, downloaded when it is not there; kept only if it passes the check."""
        root = os.environ.get(VARIABLE)
        looked = f"not in {root} (named by {VARIABLE})" if root else f"not looked for, since {VARIABLE} names no folder"
        if self.url is None:
            raise DataError(f"{self.name}: {looked}, and its publisher no longer serves it.")
        if self._cached.is_file():
            return self._cached
        import pooch

        self._cached.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self._cached.parent) as folder:
            arrived, checked = Path(folder, "arrived"), Path(folder, "checked")
            try:
                pooch.HTTPDownloader()(self.url, str(arrived), None)
                data = zipfile.ZipFile(arrived).read(self.name) if self.url.endswith(".zip") else arrived.read_bytes()
            except (OSError, zipfile.BadZipFile, KeyError) as error:  # requests' own errors are OSErrors
                raise DataError(f"{self.name}: {looked}, and the download from {self.url} failed: {error}") from None
            self._check(data, self.url)
            checked.write_bytes(data)
            checked.replace(self._cached)
        return self._cached


def unpack(data: bytes, name: str) -> bytes:
    """The decompressed bytes of an xz file; raises DataError when it is damaged."""
    try:
        return lzma.decompress(data)
    except lzma.LZMAError as error:
        raise DataError(f"{name}: the compressed file is damaged or cut off ({error}).") from None

"""One table on its way through the screens: its file, the roles of its columns, the target, and the run."""

from __future__ import annotations

import secrets
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import pandas as pd

from fairflows.app.running import Run
from fairflows.certificate.about import About
from fairflows.exceptions import DataError, DataWarning
from fairflows.result import Shared
from fairflows.sharing import share
from fairflows.table.examples import load_adult
from fairflows.table.reading import TextFormat, kind_of, read_with_formats
from fairflows.table.table import Table

ROLES = {
    "feature": "shared",
    "sensitive": "sensitive",
    "label": "label",
    "person": "person",
    "household": "household",
    "time": "time",
    "number": "measurement",
    "out": "left out",
}
"""The roles of a column, and their names on the page."""

T = TypeVar("T")
_one_notes = threading.Lock()  # warnings are recorded for the whole process


@dataclass
class Work:
    """One table on its way through the screens."""

    path: Path
    name: str
    id: str = field(default_factory=lambda: secrets.token_urlsafe(9))
    text_format: TextFormat = field(default_factory=TextFormat)
    roles: dict[str, str] = field(default_factory=dict)  # of the columns that are not just shared
    missing_group: Literal["error", "drop", "group"] = "error"
    missing_label: Literal["error", "drop", "keep"] = "error"
    merge_small: int = 0
    cuts: dict[str, list[float]] = field(default_factory=dict)  # of sensitive columns of numbers
    not_kept: set[str] = field(default_factory=set)  # rules that were found, and are not asked of shared rows
    target: float | None = None
    quick: bool = False
    run: Run | None = None
    runs: int = 0  # that were begun, so that no two have the same number
    released: Path | None = None
    notes: list[str] = field(default_factory=list)  # warnings of the last reading, or of the release
    table_notes: list[str] = field(default_factory=list)  # those of the table, such as which groups were merged
    lock: threading.RLock = field(default_factory=threading.RLock)
    one_search: threading.Lock = field(default_factory=threading.Lock)  # for columns that follow from others
    _read: tuple[object, tuple[pd.DataFrame, dict[str, str]]] | None = None
    _found: dict[str, tuple[str, Any]] = field(default_factory=dict)

    @property
    def kind(self) -> Literal["csv", "excel", "parquet"]:
        """The kind of the file."""
        return kind_of(self.path)

    @property
    def frame(self) -> pd.DataFrame:
        """All columns of the file, as it is read now."""
        return self._frame_and_formats()[0]

    def _frame_and_formats(self) -> tuple[pd.DataFrame, dict[str, str]]:
        person = next(iter(self.named("person")), None)
        how = (self.text_format, person)
        with self.lock:
            if self._read is None or self._read[0] != how:
                with self._noting() as self.notes:
                    self._read = how, read_with_formats(self.path, identifier=person, text_format=self.text_format)
            return self._read[1]

    def named(self, role: str) -> list[str]:
        """Return the columns that have a role."""
        return [name for name, given in self.roles.items() if given == role]

    def changed(self, **values: Any) -> None:
        """Take other settings; a result of the earlier ones is dropped."""
        with self.lock:
            if any(getattr(self, name) != value for name, value in values.items()):
                for name, value in values.items():
                    setattr(self, name, value)
                self.stop()

    def stop(self) -> None:
        """Cancel the run, and drop its result."""
        if self.run is not None:
            self.run.cancel()
        self.run = self.released = None

    def settings(self) -> dict[str, Any]:
        """Return the parameters of `Table`."""
        sensitive = self.named("sensitive")
        if not sensitive:
            raise DataError("Choose the sensitive column: the group that shared rows must not tell.")
        one = {role: next(iter(self.named(role)), None) for role in ("person", "household", "time")}
        for role in one:
            if len(names := self.named(role)) > 1:
                raise DataError(f"One column has the role {role}; {' and '.join(names)} are chosen.")
        return {
            "sensitive": sensitive if len(sensitive) > 1 else sensitive[0],
            "label": self.named("label") or None,
            "identifier": one["person"],
            "household": one["household"],
            "time": one["time"],
            "keep_numbers": self.named("number"),
            "drop": self.named("out"),
            "cuts": {name: self.cuts[name] for name in sensitive if name in self.cuts},
            "merge_small": self.merge_small,
            "missing_group": self.missing_group,
            "missing_label": self.missing_label,
            "name": self.name,
        }

    def table(self, **instead: Any) -> Table:
        """Return the table as it is to be shared."""
        frame, formats = self._frame_and_formats()
        with self._noting() as self.table_notes:
            table = Table(frame, **(self.settings() | instead))
        table.time_formats = formats
        return table

    def once(self, name: str, find: Callable[[], T]) -> T:
        """Return what was found about the table; it is found anew when its settings have changed."""
        of_groups = (self.missing_group, self.missing_label, self.merge_small, self.cuts)
        settings = repr((self.text_format, self.roles, of_groups))
        with self.lock:
            if name not in self._found or self._found[name][0] != settings:
                self._found[name] = settings, find()
            found: T = self._found[name][1]
            return found

    def begin(self, target: float | None, rules: list[str]) -> None:
        """Start to share the table, if that was not started before.

        Without another choice of the target or the rules, the job is that of the command without options.
        """
        with self.lock:
            if self.run is not None and self.run.state != "failed":
                return
            table, quick = self.table(), self.quick
            self.runs += 1
            self.run = Run(self.runs)
            chosen: dict[str, Any] = {"rules": rules, "find_rules": False} if self.not_kept else {}
            self.run.start(lambda: share(table, target=target, quick=quick, **chosen))

    @contextmanager
    def _noting(self) -> Iterator[list[str]]:
        """Give a list that holds what the work inside warned of, for the page, when it has ended."""
        said: list[str] = []
        with _one_notes, warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", DataWarning)
            yield said
        texts = [str(warning.message) for warning in found if issubclass(warning.category, DataWarning)]
        said += [text.replace(str(self.path), self.name) for text in texts]

    def release(self, folder: Path, about: About) -> Shared:
        """Write the folder of a finished run: this alone counts as a release."""
        with self.lock:
            if self.released is not None:
                raise DataError(f"This result was released before, into {self.released}.")
            if self.run is None or self.run.shared is None:
                raise DataError("There is no result yet: share the table first.")
            shared = self.run.shared
            shared = replace(shared, certificate=replace(shared.certificate, about=about))
            with self._noting() as self.notes:
                saved = shared.save(folder, kind="parquet" if self.kind == "parquet" else "csv")
            self.released = folder
            return saved


def adult(folder: Path) -> Work:
    """Return the table Adult, with its roles, as if its file had been chosen."""
    table, path = load_adult(), folder / f"adult-{secrets.token_hex(4)}.csv"
    rows = table.X.assign(sex=table.a.map(table.group_names), income=table.y)
    rows.to_csv(path, index=False)
    return Work(path, "adult", roles={"sex": "sensitive", "income": "label"})

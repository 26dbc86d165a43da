"""What all encoders share: where the sensitive attribute, the label and the person of a row come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, validate_data

from fairflows.encoder.checks import check_key, check_kinds
from fairflows.exceptions import DataError, Parameter, ParameterError
from fairflows.table.columns import check_known, shown, sorted_values
from fairflows.table.frames import is_polars, like, to_pandas
from fairflows.table.ledger import named_persons
from fairflows.table.persons import KeySetting, Persons
from fairflows.table.roles import role_column


@dataclass(frozen=True)
class Rows:
    """Rows as an encoder sees them.

    Attributes
    ----------
    X : DataFrame
        The features, without the sensitive and identifier columns.
    group : ndarray of int
        Each row's group, as a place in the encoder's ``groups_``.
    persons : Persons or None
        Whose rows they are; None when nobody said.
    identifier : str or None
        The column that the encoder knows persons by.
    """

    X: pd.DataFrame
    group: npt.NDArray[np.intp]
    persons: Persons | None
    identifier: str | None = None

    def keyed(self) -> Persons:
        """The persons whose coins and noise the rows get: where nobody named them the index must do, with a warning."""
        if self.persons is not None:
            return self.persons
        if self.identifier is not None:
            raise DataError(
                f"The encoder knows persons by their {self.identifier!r} (",
                Parameter("identifier", self.identifier),
                "), which these rows lack: add that column, or make it the index.",
            )
        return Persons.of_rows(self.X)


class GroupEncoder(TransformerMixin, BaseEstimator):
    """Base of the encoders: reads tables, keeps the groups and classes, gives back the kind of table that came.

    The sensitive attribute comes with each call (``sensitive_features=a``), or is a column of X that the constructor
    names (``sensitive="sex"``), since pipelines and scorers do not always pass arguments on. Both ways give the same
    result; the column is never a feature.
    """

    sensitive: str | list[str] | None
    identifier: str | None
    random_state: int
    key = KeySetting()
    groups_: list[Any]
    classes_: Any

    _strength: ClassVar[str] = "gamma"
    """The setting that a frontier varies."""

    def fit(self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None) -> Self:
        """Learn one encoder per group.

        Parameters
        ----------
        X : frame or array
            Rows to learn from.
        y : array, optional
            The label; without one, the encoder keeps no task in mind.
        sensitive_features : array, optional
            The sensitive attribute, unless a column of X holds it.
        sample_weight : array, optional
            Weight of each row.
        """
        strength = getattr(self, self._strength)
        with self._all_or_nothing():
            self._fit(X, y, sensitive_features, sample_weight, [strength], [self.random_state], [self])
        return self

    def fit_many(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        gammas: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Self]:
        """Fitted encoders for every gamma (or strength) and seed, gamma by gamma, sharing all that they can."""
        made = [clone(self).set_params(**{self._strength: g, "random_state": s}) for g in gammas for s in seeds]
        clone(self)._fit(X, y, sensitive_features, sample_weight, gammas, seeds, made)
        return made

    def _fit(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any,
        sample_weight: Any,
        strengths: Sequence[float],
        seeds: Sequence[int],
        made: list[Self],
    ) -> None:
        """Fit the encoders `made`, one for each strength and seed, to the same rows."""
        raise NotImplementedError

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A fit that fails leaves the encoder as it was: half of a new model beside half of an old one is neither."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _check_strengths(self, strengths: Sequence[float]) -> None:
        for strength in strengths:
            if not (isinstance(strength, Real) and 0 <= strength <= 1):
                raise ParameterError(self._strength, "must be in [0, 1]", strength)

    def fit_transform(
        self, X: Any, y: Any = None, *, sensitive_features: Any = None, sample_weight: Any = None, **settings: Any
    ) -> Any:
        """Fit, then encode the same rows."""
        self.fit(X, y, sensitive_features=sensitive_features, sample_weight=sample_weight, **settings)
        return self.transform(X, sensitive_features=sensitive_features)

    def _read(self, X: Any, sensitive_features: Any, *, fit: bool = False, allow_missing: bool = False) -> Rows:
        """The rows of a table, checked; with ``fit``, its columns and groups are remembered."""
        if not fit:
            check_is_fitted(self)
        frame = self._frame(X, allow_missing)
        validate_data(self, frame if has_names(X) else frame.to_numpy(), skip_check_array=True, reset=fit)
        if len(frame) < (2 if fit else 1):
            raise DataError(f"Found a table with {len(frame)} sample(s); an encoder needs {'two' if fit else 'one'}.")
        if fit:
            check_key(self.key)
            check_kinds(getattr(self, "kinds", None), frame.columns)
        rows = self._rows(frame, sensitive_features, fit)
        if not rows.X.shape[1]:
            raise DataError("0 feature(s) are left to encode beside the sensitive attribute and the identifier.")
        return rows

    def _read_latent(self, Z: Any, sensitive_features: Any) -> Rows:
        """Encoded rows, their columns by name in our order, with what tells how to decode them."""
        check_is_fitted(self)
        frame, names = self._frame(Z, getattr(self, "missing", "error") == "category"), self._names_out()
        if not has_names(Z) and frame.shape[1] == len(names):
            frame = frame.set_axis(names, axis=1)
        rows = self._rows(frame, sensitive_features, fit=False)
        Z_named = rows.X.set_axis(rows.X.columns.astype(str), axis=1)
        if set(Z_named.columns) != set(names):
            got, wanted = (", ".join(map(str, list(some)[:8])) for some in (Z_named.columns, names))
            raise DataError(f"Encoded rows must have the columns {wanted} ({len(names)} in all); got {got}.")
        return replace(rows, X=Z_named[names])

    def _rows(self, frame: pd.DataFrame, sensitive_features: Any, fit: bool) -> Rows:
        attribute, taken = self._attribute(frame, sensitive_features)
        if fit:
            self.groups_ = self._find_groups(attribute)
        group = self._group_of(attribute)
        if self.identifier is None or self.identifier in frame.columns or self.identifier == frame.index.name:
            persons = named_persons(frame, self.identifier)
        elif fit:
            check_known(self.identifier, frame.columns, "identifier")
        else:
            persons = None  # another column's index is not the identifier
        taken = [*taken, *({self.identifier} & set(frame.columns))]
        return Rows(frame.drop(columns=taken), group, persons, self.identifier)

    def _read_label(self, y: Any, n_rows: int) -> npt.NDArray[np.intp] | None:
        """The label as class numbers, remembering the classes; None without a label."""
        if y is None:
            self.classes_ = None
            return None
        column = pd.Series(np.asarray(y, dtype=object if isinstance(y, list | tuple) else None).ravel()).infer_objects()
        if len(column) != n_rows:
            raise DataError(f"y must have one value a row ({n_rows} rows); got {len(column)}.")
        if column.isna().any():
            raise DataError(f"y must be known in every row; {int(column.isna().sum())} values are missing (NaN).")
        classes = sorted_values(column)
        several_types = len({type(value) for value in classes}) > 1  # which NumPy would make text of
        self.classes_ = np.array(classes, dtype=object if several_types else None)
        if len(classes) < 2:
            raise DataError(f"y must have at least two classes; every row is {shown(classes[0])}.")
        return pd.Index(classes, dtype=object).get_indexer(column.astype(object))

    def _read_weight(self, sample_weight: Any, X: pd.DataFrame) -> npt.NDArray[np.float64] | None:
        """Row weights, checked; None when all rows count alike."""
        if sample_weight is None:
            return None
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise DataError("sample_weight must have a positive weight; every weight is zero.")
        return weight

    def _need_label(self) -> None:
        if self.classes_ is None:
            raise DataError(f"{type(self).__name__} was fitted without a label and cannot predict one.")

    def _frame(self, X: Any, allow_missing: bool = False) -> pd.DataFrame:
        if has_names(X):
            return to_pandas(X)
        if _has_text(X):
            texts = check_array(X, dtype=object, ensure_all_finite="allow-nan" if allow_missing else True)
            return to_pandas(texts).infer_objects()
        array = check_array(X, dtype="numeric", ensure_all_finite="allow-nan" if allow_missing else True)
        return to_pandas(array)

    def _attribute(self, frame: pd.DataFrame, sensitive_features: Any) -> tuple[pd.Series, list[Any]]:
        """The sensitive attribute, and which columns of the frame it is (none when it came as an argument alone)."""
        names = [self.sensitive] if isinstance(self.sensitive, str) else list(self.sensitive or [])
        in_frame = [name for name in names if name in frame.columns]
        if sensitive_features is not None:
            given = (
                np.asarray(sensitive_features) if isinstance(sensitive_features, list | tuple) else sensitive_features
            )
            return role_column(frame, given, "sensitive")[0], in_frame
        if self.sensitive is None:
            raise DataError(
                f"{type(self).__name__} encodes each group its own way and needs the sensitive attribute: pass "
                "sensitive_features=..., or name its column in the constructor (sensitive='...')."
            )
        return role_column(frame, self.sensitive, "sensitive")

    def _find_groups(self, attribute: pd.Series) -> list[Any]:
        if attribute.isna().any():
            raise DataError(
                f"The sensitive attribute must be known in every row; {int(attribute.isna().sum())} are not."
            )
        groups = sorted_values(attribute)
        if len(groups) < 2:
            raise DataError(f"The sensitive attribute needs at least two groups; every row is {shown(groups[0])}.")
        return groups

    def _group_of(self, attribute: pd.Series) -> npt.NDArray[np.intp]:
        group = pd.Index(self.groups_, dtype=object).get_indexer(attribute.astype(object))
        if (group < 0).any():
            first = attribute.iloc[int((group < 0).argmax())]
            known = ", ".join(map(shown, self.groups_))
            raise DataError(
                f"The sensitive attribute must be one of the groups that the encoder was fitted on ({known}); "
                f"{int((group < 0).sum())} rows are not, the first is {shown(first)}."
            )
        return group

    def _wrap_output(self, X: Any, frame: pd.DataFrame) -> Any:
        """`frame` with the index of X, as the kind of table that X is."""
        index = getattr(X, "index", None)
        if isinstance(X, pd.DataFrame):
            frame = frame.set_axis(index)
        return like(X if has_names(X) else np.empty(0), frame)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Names of the encoded columns."""
        check_is_fitted(self)
        return np.array(self._names_out(), dtype=object)

    def _names_out(self) -> list[str]:
        raise NotImplementedError

    def transform(self, X: Any, *, sensitive_features: Any = None) -> Any:
        """Encode rows, each by its group's encoder."""
        raise NotImplementedError


def has_names(X: Any) -> bool:
    """Whether a table has names for its columns."""
    return isinstance(X, pd.DataFrame) or is_polars(X)


def _has_text(X: Any) -> bool:
    """Whether an array has columns of text, or a list of rows a value of it."""
    if isinstance(X, list | tuple):
        X = np.asarray(X, dtype=object)
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OU":
        return False
    return X.dtype.kind == "U" or any(isinstance(value, str) for value in X.flat)

"""FairTransport: randomised encoders that leave an adversary nothing, at the least cost to the task."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from fairflows.codec.cell_codec import CellCodec
from fairflows.codec.levels import Levels
from fairflows.density.cell_density import MOST_CELLS_ENUMERATED, CellDensity
from fairflows.encoder.base import ExactLaw, FloatArray, LabelsLike, Learnt, Rows, has_names
from fairflows.encoder.cell_coupling import TransportedCells
from fairflows.encoder.cell_model import KnownCells, check_labels, fit_cell_model
from fairflows.encoder.checks import Classifier, Output, check_cell_settings
from fairflows.encoder.group_encoder import GroupEncoder
from fairflows.encoder.task_score import ScoreColumn, checked_columns, score_columns
from fairflows.encoder.transported_score import TransportedScore
from fairflows.exceptions import DataError
from fairflows.table.columns import check_choice, infer_kind
from fairflows.table.frames import TableLike, to_pandas
from fairflows.table.persons import Persons
from fairflows.table.table import Role


class FairTransport(GroupEncoder):
    """Encode by optimal transport: of cells for categorical tables, of a task score for all others.

    *Cells.* Each group's cells are sent at random, keyed by person, so that the encoded cell has the same law in every
    group: under the estimated densities Δ = 0 exactly. Among all such encoders, this one changes the fewest predicted
    labels. Below full strength it moves along the closed-form frontier, Δ = (1 − strength)·TV_class.

    *Scores.* A classifier's score is moved, group by group, through its own quantile function onto the groups' common
    barycentre, and mixed with the raw score: t = (1 − strength)·s + strength·Q̄(F_a(s)). All else of the row is lost.
    Release the score's cell (`CellRelease`), never the score itself.

    The encoder is no bijection: `inverse_transform` samples a row that may stand behind z, and exists for cells only.

    Parameters
    ----------
    strength : float
        1 makes the groups alike; 0 leaves every predicted label, or every score, as it is.
    transport : {"auto", "cells", "score"}
        What to transport; "auto" takes cells where every column is categorical.
    classifier : classifier, optional
        Predicts the label: for cells from one-hot columns (logistic regression when not given), for scores from the
        columns themselves (gradient boosting when not given).
    density, hidden, output, n_bins, max_cells
        As for `FairMatching`; for cells only.
    reference : {"mean", "largest"} or group
        The law that all groups are sent to; for cells only. The mean shares the changes among the groups.
    kinds, unseen, missing, sensitive, identifier, key, random_state, device
        As for `FairMatching`.

    Attributes
    ----------
    groups_, classes_ : list, array
        The values of the sensitive attribute and of the label.
    latent_laws_ : ndarray of shape (K, m)
        For cells: the exact law of the encoded cell in each group, under the estimated densities.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> encoder = FairTransport(density="counts").fit(load_adult())
    >>> bool(np.abs(encoder.latent_laws_[0] - encoder.latent_laws_[1]).sum() < 1e-10)
    True
    """

    strength_name = "strength"
    transport_: TransportedCells | TransportedScore
    columns_: dict[Hashable, ScoreColumn] | None

    def __init__(
        self,
        strength: float = 1.0,
        *,
        transport: Literal["auto", "cells", "score"] = "auto",
        classifier: Classifier | None = None,
        density: str | Callable[[Sequence[int]], CellDensity] = "made",
        hidden: Sequence[int] = (50, 50),
        reference: Hashable = "mean",
        output: Output = "categories",
        n_bins: int = 4,
        max_cells: int = MOST_CELLS_ENUMERATED,
        kinds: Mapping[str, str] | None = None,
        unseen: Literal["error", "other"] = "error",
        missing: Literal["error", "category"] = "error",
        sensitive: str | list[str] | None = None,
        identifier: str | None = None,
        key: bytes | None = None,
        random_state: int = 0,
        device: str = "cpu",
    ) -> None:
        self.strength = strength
        self.transport = transport
        self.classifier = classifier
        self.density = density
        self.hidden = hidden
        self.reference = reference
        self.output = output
        self.n_bins = n_bins
        self.max_cells = max_cells
        self.kinds = kinds
        self.unseen = unseen
        self.missing = missing
        self.sensitive = sensitive
        self.identifier = identifier
        self.key = key
        self.random_state = random_state
        self.device = device

    def _fit(
        self,
        rows: Rows,
        y: LabelsLike | None,
        sample_weight: FloatArray | None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Learnt | None]:
        self._check_strengths(strengths)
        check_cell_settings(self)
        check_choice("transport", self.transport, ("auto", "cells", "score"))
        labels, names = self._read_labels(y, len(rows.X))
        of_cells = self._transports_cells(rows.X)
        self.columns_ = None if of_cells else score_columns(rows.X, self.kinds or {}, self.unseen)
        rows = self._checked(rows)
        transports: dict[int, TransportedCells | TransportedScore] = {
            seed: self._fit_cells(rows, labels, sample_weight, seed)
            if of_cells
            else self._fit_score(rows, labels, names, sample_weight, seed)
            for seed in seeds
        }
        return [{"transport_": transports[seed].at(strength)} for strength in strengths for seed in seeds]

    @property
    def is_randomised(self) -> bool:
        """Cells are sent at random, and a score's ties are broken at random."""
        return True

    def _transports_cells(self, X: pd.DataFrame) -> bool:
        kinds = [(self.kinds or {}).get(name) or infer_kind(X[name]) for name in X]
        return self.transport == "cells" or (self.transport == "auto" and all(kind == "categorical" for kind in kinds))

    def _checked(self, rows: Rows) -> Rows:
        """The rows of a score, their columns checked; cells are checked by their codec."""
        columns = self.columns_
        return (
            rows if columns is None else replace(rows, X=checked_columns(rows.X, columns, self.missing, rows.outside))
        )

    def _fit_cells(
        self, rows: Rows, labels: npt.NDArray[np.intp] | None, weight: FloatArray | None, seed: int
    ) -> TransportedCells:
        if labels is not None and labels.shape[1] > 1:
            raise DataError(
                f"Transport of cells takes one label; got {labels.shape[1]}. Use transport='score' for several."
            )
        y = None if labels is None else labels[:, 0]
        if y is not None:
            check_labels(rows.group, y, self.groups_, self.label_classes)
        codec = CellCodec(n_bins=self.n_bins, unseen=self.unseen, missing=self.missing).fit(rows.X, self.kinds)
        model = fit_cell_model(
            codec,
            codec.encode(rows.X),
            rows.group,
            y,
            groups=self.groups_,
            density=self.density,
            hidden=self.hidden,
            classifier=self.classifier,
            sample_weight=weight,
            max_cells=self.max_cells,
            random_state=seed,
            device=self.device,
        )
        return TransportedCells.of(model, self.reference, self.groups_, self.output)

    def _fit_score(
        self,
        rows: Rows,
        labels: npt.NDArray[np.intp] | None,
        names: list[str],
        weight: FloatArray | None,
        seed: int,
    ) -> TransportedScore:
        if labels is None:
            raise DataError("Transport of a score needs a label to score; pass y, or use transport='cells'.")
        classes = self.classes_ if isinstance(self.classes_, list) else [self.label_classes]
        for j, values in enumerate(classes):
            check_labels(rows.group, labels[:, j], self.groups_, values)
        columns = []
        for name, values in zip(names, classes, strict=True):
            several = [f"{name}={value}" for value in values]
            columns += [name] if len(values) == 2 else several
        return TransportedScore.fit(
            rows,
            labels,
            columns,
            [len(values) for values in classes],
            n_groups=len(self.groups_),
            categories=[name for name, what in (self.columns_ or {}).items() if isinstance(what, Levels)],
            classifier=self.classifier,
            sample_weight=weight,
            random_state=seed,
        )

    def _read_labels(self, y: LabelsLike | None, n_rows: int) -> tuple[npt.NDArray[np.intp] | None, list[str]]:
        """Labels as class numbers, (n_rows, n_labels), and the names of their scores."""
        if y is None or np.asarray(y).ndim < 2:
            codes = self._read_label(y, n_rows)
            return (None if codes is None else codes[:, None]), ["score"]
        columns = to_pandas(y) if has_names(y) else pd.DataFrame(np.asarray(y)).add_prefix("score")
        numbers, classes = [], []
        for name in columns:
            numbers.append(np.asarray(self._read_label(columns[name], n_rows)))
            classes.append(self.label_classes)
        self.classes_ = classes if len(classes) > 1 else classes[0]
        return np.column_stack(numbers), [str(name) for name in columns]

    @property
    def latent_laws_(self) -> FloatArray:
        """The law of the encoded cell in each group under the estimated densities, (K, m); for cells only."""
        check_is_fitted(self)
        if isinstance(self.transport_, TransportedScore):
            raise AttributeError("A transported score has no law of cells; release it as cells and certify those.")
        return np.asarray(self.transport_.laws)

    @property
    def held_out_log_likelihood_(self) -> FloatArray | None:  # type: ignore[override]
        """How well each group's density of cells fits rows that it was not fitted on; None for a score."""
        check_is_fitted(self)
        transport = self.transport_
        return transport.model.held_out_log_likelihood if isinstance(transport, TransportedCells) else None

    def encode(self, rows: Rows) -> pd.DataFrame:
        """The moved cell or score of each row; one person is always encoded alike."""
        return self.transport_.encode(self._checked(rows), self.key_)

    def _decode_rows(self, Z: TableLike, sensitive_features: Role | None, persons: Persons | None) -> pd.DataFrame:
        """A *sample* of the rows that may stand behind Z, drawn from x given z and the group, keyed by person.

        Transport is not a bijection: these are not the rows that were encoded.
        """
        check_is_fitted(self)
        if isinstance(self.transport_, TransportedScore):
            raise DataError("A transported score cannot be decoded: the rest of the row is lost.")
        rows = self._read_latent(Z, sensitive_features, persons, by_person=True)
        return self.transport_.decode(rows, self.key_)

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """The class that each encoded row suggests; one column per label where there are several."""
        rows = self._checked(rows)
        if isinstance(self.transport_, TransportedCells):
            return self.label_classes[self.transport_.predict(self.transport_.cells(rows, self.key_))]
        codes = self.transport_.predict(self.transport_.encode(rows, self.key_).to_numpy())
        if isinstance(self.classes_, list):
            predicted = [values[codes[:, j]] for j, values in enumerate(self.classes_)]
            alike = len({values.dtype.kind for values in predicted}) == 1
            return np.column_stack(predicted if alike else [values.astype(object) for values in predicted])
        return self.label_classes[codes[:, 0]]

    def latent_law(self) -> ExactLaw | None:
        """Of cells, the law under the estimated densities; of one score, a histogram of calibration rows.

        Of several scores no joint law is known.
        """
        check_is_fitted(self)
        laws = self.transport_.latent_laws()
        return None if laws is None else ExactLaw(laws, {})

    def log_density_table(self, n: int, random_state: int = 0) -> FloatArray:
        """Draws from every group's latent law and their log-density under every group, (n, K drawn, K density)."""
        law = self.latent_law()
        if law is None:
            raise DataError("No joint law of several scores is known.")
        return law.log_density_table(n, random_state)

    def known_cells(self) -> KnownCells | None:
        """The laws of cells; None for a score."""
        check_is_fitted(self)
        transport = self.transport_
        if isinstance(transport, TransportedScore):
            return None
        return KnownCells(transport.model, self.output, np.asarray(transport.laws))

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame] | None:
        """n rows of each group drawn from its density p̂_a; None for a score, which has no density of rows."""
        check_is_fitted(self)
        if isinstance(self.transport_, TransportedScore):
            return None
        return self.transport_.model.sample_rows(n, random_state)

    def _names_out(self) -> list[str]:
        return self.transport_.names

"""FairMatching: the best bijections between the cells of categorical tables, in closed form.

A map is an integer array f over cell codes: a person of the group in cell x is released as cell f[x]. The reference
keeps its cells. Of K groups each is matched to the same reference; any two are then matched to each other as well as
if one of them had been the reference, so the choice of it changes which cells carry the latent, never a distance.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fairflows.density.cell_counts import CellDensity
from fairflows.encoder.base import (
    Encoder,
    FloatArray,
    IntArray,
    Traits,
    at_strength,
    check_fitted,
    handed_over,
    label_values,
    share_ledger,
)
from fairflows.encoder.cell_model import (
    CellModel,
    ExactLaw,
    KnownCells,
    cells_of_encoded,
    check_labels,
    encoded_columns,
    fit_cell_model,
)
from fairflows.encoder.labels import LabelsLike
from fairflows.encoder.rows import Rows, RowsLike, TrainingRows, read_latent
from fairflows.exceptions import DataError, check_count, check_share, is_count
from fairflows.table.frames import ColumnLike, Frame, TableLike, materialised
from fairflows.table.persons import NEW_AT_EACH_FIT, Key, KeySetting, Persons, new_key
from fairflows.table.table import Role


@dataclass(eq=False, repr=False)
class FairMatching(Encoder):
    """Encode categorical tables by matching the cells of each group to those of the largest group.

    Two bijections are known in closed form: *sort-and-match*, which makes the groups' laws as alike as any bijection
    can, and the *label split*, which does so among cells of the same predicted label and so keeps the task. A keyed
    coin for each person picks the first with probability γ (Balunović et al., 2022).

    Parameters
    ----------
    gamma : float
        0 is the label split alone, the most accurate; 1 is sort-and-match alone, the fairest.
    density : {"made", "counts"} or callable, default="made"
        The density of cells p̂_a: an autoregressive network, smoothed counts, or a function that makes a density from
        the level counts.
    hidden : sequence of int
        Hidden layers of the network.
    n_bins : int
        Quantile bins of number columns with many values.
    max_cells : int
        With more cells, counted once for every group, only the observed ones are matched, and a warning says so: a row
        in another cell keeps it, and the probability of such rows counts in full against the encoder. The default
        takes up to three gigabytes.
    kinds : dict of str to {"continuous", "discrete", "categorical"}, default=None
        The content of columns whose types do not tell it.
    unseen : {"error", "other"}, default="error"
        Raise for a category that the training rows did not have, or treat it alike in every group.
    missing : {"error", "category"}, default=None
        Raise for missing values, or keep them as a category of their own; by default as the `Table` says, and "error"
        for any other kind of table.
    sensitive, identifier : str, optional
        Columns of X that hold the sensitive attribute and name the person of a row; the identifier may be the index.
    key : bytes, optional
        The secret behind the coins, at least 16 bytes; a new one at each fit when not given.
    random_state : int
        Seed of the densities.
    device : str
        Where networks are trained.

    Attributes
    ----------
    latent_laws_ : ndarray of shape (K, m)
        The exact law of the encoded cell in each group, under the estimated densities.

    Examples
    --------
    >>> from fairflows import load_adult
    >>> train, _, test = load_adult().split(random_state=0)
    >>> encoder = FairMatching(gamma=1, density="counts").fit(train)
    >>> Z = encoder.transform(test)
    >>> Z.shape == test.X.shape
    True
    >>> encoder.inverse_transform(Z, sensitive_features=test.a).equals(test.X)
    True
    """

    gamma: float = 0.1
    _: KW_ONLY
    density: str | Callable[[Sequence[int]], CellDensity] = "made"
    hidden: Sequence[int] = (50, 50)
    n_bins: int = 4
    max_cells: int = 10_000_000
    kinds: Mapping[str, str] | None = None
    unseen: Literal["error", "other"] = "error"
    missing: Literal["error", "category"] | None = None
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0
    device: str = "cpu"

    model_: CellModel = field(init=False)
    matched_: IntArray = field(init=False)
    split_: IntArray = field(init=False)
    latent_laws_: FloatArray = field(init=False)
    class_of_cell_: IntArray | None = field(init=False)

    @property
    def traits(self) -> Traits:
        """Both maps are bijections; between the two ends of the frontier a coin picks one of them."""
        return Traits(invertible=True, randomised=self.gamma not in (0, 1))

    def learn(self, rows: TrainingRows) -> None:
        """Fit the densities of cells and the classifier, and match the groups' cells."""
        self._check_settings()
        label = rows.label_with_classes("FairMatching")
        y = None if label is None else label.values
        if y is not None:
            check_labels(rows.group, y, self.groups_, label_values(self))
        self.model_ = fit_cell_model(self, rows, y)
        self.matched_, self.split_ = self._maps(self.model_)
        self.held_out_log_likelihood_ = self.model_.held_out_log_likelihood
        self.output_ = encoded_columns(self.model_.codec)
        self._mix(self.gamma)

    def fit_path(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        sample_weight: ColumnLike | None = None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Self]:
        """Fit an encoder for every gamma and seed; densities and maps depend on the seed alone."""
        X, given = materialised(X), {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        for gamma in strengths:
            check_share("gamma", gamma)
        key = new_key() if self.key is None else self.key
        fitted = {}
        for seed in seeds:
            fitted[seed] = at_strength(self, strengths[0], seed)
            fitted[seed].key = key
            fitted[seed].fit(X, y, **given)
        found = [fitted[seed]._with_gamma(gamma, self.key) for gamma in strengths for seed in seeds]
        share_ledger(found)
        return found

    def _with_gamma(self, gamma: float, key: Key | None) -> Self:
        """Return a copy of the fitted encoder with another gamma, and with this setting of the key."""
        encoder = copy.copy(self)
        encoder.gamma, encoder.key = gamma, key
        encoder._mix(gamma)
        return encoder

    def _maps(self, model: CellModel) -> tuple[IntArray, IntArray]:
        """Every group's sort-and-match and label split to the reference, (K, m) each."""
        log_p_reference = model.log_reference
        matched = np.stack([sort_and_match(log_p_reference, log_p) for log_p in model.log_p])
        if model.scores is None:
            return matched, matched
        labels = model.scores.argmax(axis=1)
        split = np.stack([label_split(log_p_reference, log_p, labels) for log_p in model.log_p])
        return matched, split

    def _mix(self, gamma: float) -> None:
        """Set the exact law of the encoded cell, and the class that each encoded cell suggests."""
        model, matched, split = self.model_, self.matched_, self.split_
        self.latent_laws_ = latent_laws(model.log_p, matched, split, gamma)
        self.class_of_cell_ = None
        if model.scores is None:
            return
        # P(y | z), all groups alike: the scores of the rows that z stands for, weighted by their probability.
        evidence = np.zeros_like(model.scores)
        for p, f, g in zip(np.exp(model.log_p), matched, split, strict=True):
            mass = p[:, None] * model.scores
            evidence[f] += gamma * mass
            evidence[g] += (1 - gamma) * mass
        total = evidence.sum(axis=1, keepdims=True)
        self.class_of_cell_ = np.divide(evidence, total, out=model.scores.copy(), where=total > 0).argmax(axis=1)

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Send the cell of each row through its group's map that the person's coin picks."""
        return self.model_.codec.decode(self._encoded_cells(rows))

    def inverse_transform(
        self, X: TableLike, *, sensitive_features: Role | None = None, persons: Persons | None = None
    ) -> Frame:
        """Return the rows that were encoded as X.

        Parameters
        ----------
        X : frame or array
            Encoded rows.
        sensitive_features : array, default=None
            Their groups, unless a column of X holds them.
        persons : Persons, default=None
            Who is who, because coins are repeated; by default as the identifier says.
        """
        check_fitted(self)
        randomised = self.traits.randomised
        rows = read_latent(self, X, sensitive_features, persons, by_person=randomised)
        cells = cells_of_encoded(self.model_.codec, rows.X)
        persons = rows.named_persons() if randomised else rows.persons
        matched, split = (np.stack([inverse_map(f) for f in maps]) for maps in (self.matched_, self.split_))
        decoded = self.model_.codec.decode(self._apply(matched, split, cells, rows, persons))
        return handed_over(X, decoded)

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the class that each row's encoded cell suggests, from the cell alone."""
        values, cells = label_values(self), self._encoded_cells(rows)
        place, known = self.model_.place(cells)
        classes = np.asarray(self.class_of_cell_)[np.where(known, place, 0)]
        if not known.all():
            classes[~known] = self.model_.score(cells[~known]).argmax(axis=1)
        return values[classes]

    def latent_law(self) -> ExactLaw:
        """Return the laws of the encoded cell; mass outside the m cells counts as if no two groups met there."""
        check_fitted(self)
        known = KnownCells(self.model_, self.latent_laws_, (self.matched_, self.split_))
        return ExactLaw(np.concatenate([self.latent_laws_, np.diag(self.model_.tails)], axis=1), known)

    def _encoded_cells(self, rows: Rows) -> IntArray:
        persons = rows.persons_or_fresh() if self.traits.randomised else rows.persons
        cells = self.model_.codec.encode(rows.X, rows.outside)
        return self._apply(self.matched_, self.split_, cells, rows, persons)

    def _apply(self, matched: IntArray, split: IntArray, cells: IntArray, rows: Rows, persons: Persons) -> IntArray:
        place, known = self.model_.place(cells)
        place = np.where(known, place, 0)
        group = rows.map_group
        if self.traits.randomised:
            coin = persons.uniform(self.key_, "matching") < self.gamma
            sent = np.where(coin, matched[group, place], split[group, place])
        else:
            sent = (matched if self.gamma == 1 else split)[group, place]
        if self.model_.support is not None:
            sent = self.model_.support[sent]
        return np.where(known, sent, cells)

    def _check_settings(self) -> None:
        check_share("gamma", self.gamma)
        check_count("n_bins", self.n_bins, 2)
        check_count("max_cells", self.max_cells, 1)
        widths = self.hidden
        if not (isinstance(widths, Sequence) and not isinstance(widths, str) and all(is_count(w, 1) for w in widths)):
            raise DataError(f"hidden must be a sequence of widths, whole numbers of at least 1; got {widths!r}.")


def sort_and_match(log_p_reference: FloatArray, log_p_group: FloatArray) -> IntArray:
    """Return the bijection of smallest distance: the k-th likeliest cell goes to the reference's k-th likeliest.

    With i and j sorting p_ref and p_group, f(x_{j_k}) = x_{i_k}. Swapping two images of an optimal map that is out of
    order cannot raise Δ = ½ Σ_z |p_ref(z) − p_group(f⁻¹(z))|, so the sorted map attains the minimum (Lemma
    5.4 of Balunović et al., 2022). Equal probabilities are matched in the order of their codes, so that a law matched
    to itself stays put.

    Parameters
    ----------
    log_p_reference, log_p_group : array of shape (m,)
        Log-probabilities of the same m cells.

    Returns
    -------
    array of int, shape (m,)
        The cell that each of the group's cells is sent to.

    Examples
    --------
    >>> sort_and_match(np.log([0.2, 0.3, 0.5]), np.log([0.6, 0.1, 0.3]))
    array([2, 0, 1])
    """
    return _matching(np.argsort(log_p_reference, kind="stable"), np.argsort(log_p_group, kind="stable"))


def label_split(log_p_reference: FloatArray, log_p_group: FloatArray, labels: ArrayLike) -> IntArray:
    """Sort-and-match within each predicted label, so that a cell goes to one with the same prediction.

    Parameters
    ----------
    log_p_reference, log_p_group : array of shape (m,)
        Log-probabilities of the same m cells.
    labels : array of shape (m,)
        The label predicted for each cell.

    Returns
    -------
    array of int, shape (m,)
        The cell that each of the group's cells is sent to.

    Examples
    --------
    >>> label_split(np.log([0.2, 0.3, 0.5]), np.log([0.6, 0.1, 0.3]), [0, 0, 1])
    array([1, 0, 2])
    """
    by_label = np.asarray(labels)
    return _matching(np.lexsort((log_p_reference, by_label)), np.lexsort((log_p_group, by_label)))


def _matching(order_reference: IntArray, order_group: IntArray) -> IntArray:
    f = np.empty_like(order_group)
    f[order_group] = order_reference
    return f


def inverse_map(f: IntArray) -> IntArray:
    """Return the bijection that undoes f.

    Examples
    --------
    >>> inverse_map(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    return _matching(np.arange(len(f)), f)


def latent_laws(log_p: FloatArray, matched: IntArray, split: IntArray, gamma: float) -> FloatArray:
    """Laws of the released cell, one row per group, when a coin picks sort-and-match with probability γ.

    p_Za(z) = γ · p_a(f_a⁻¹(z)) + (1 − γ) · p_a(g_a⁻¹(z)), with f_a the sort-and-match and g_a the label split, all of
    shape (K, m). γ = 0 is the label split alone, the most accurate; γ = 1 is sort-and-match alone, the fairest.
    """
    if not 0.0 <= gamma <= 1.0:
        raise DataError(f"gamma must be in [0, 1]; got {gamma!r}.")
    p = np.exp(log_p)
    by_matching, by_splitting = np.empty_like(p), np.empty_like(p)
    np.put_along_axis(by_matching, matched, p, axis=1)
    np.put_along_axis(by_splitting, split, p, axis=1)
    return gamma * by_matching + (1.0 - gamma) * by_splitting

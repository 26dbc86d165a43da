"""FairMatching: the best bijections between the cells of categorical tables, in closed form.

A map is an integer array f over cell codes: a person of the group in cell x is released as cell f[x]. The reference
keeps its cells. Of K groups each is matched to the same reference; any two are then matched to each other as well as
if one of them had been the reference, so the choice of it changes which cells carry the latent, never a distance.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fairflows.encoder.base import ExactLaw, FloatArray, IntArray, LabelledRows, Learnt, Rows
from fairflows.encoder.cell_model import (
    CellModel,
    CellModelEncoder,
    KnownCells,
    cells_from_output,
    check_labels,
    fit_cell_models,
    output_names,
    to_output,
)
from fairflows.exceptions import DataError, check_choice
from fairflows.table.frames import TableLike, Values
from fairflows.table.persons import Persons
from fairflows.table.table import Role


@dataclass(eq=False, repr=False)
class FairMatching(CellModelEncoder):
    """Encode categorical tables by matching the cells of each group to those of a reference.

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
    criterion : {"demographic_parity", "equalized_odds"}
        With equalized odds, densities p̂(cell | a, y) are fitted too, and a certificate states Δ_y within each label;
        the maps are the same.
    hidden : sequence of int
        Hidden layers of the network.
    classifier : classifier, optional
        Predicts the label of a cell from its one-hot columns, all groups weighing the same where it takes weights;
        logistic regression when not given.
    reference : {"largest", "mean"} or group
        The group whose cells the others are sent to, or the mean of all laws.
    output : {"categories", "one-hot", "codes"}
        Encoded rows as the table's own categories, as one-hot columns, or as the number of the cell.
    n_bins : int
        Quantile bins of number columns with many values.
    max_cells : int
        From this many cells on, or where they do not fit the memory, only the observed ones are matched: a row in
        another cell keeps it, and the probability of such rows counts in full against the encoder. The logger
        "fairflows" says which, a warning if some cells are left out.
    kinds, unseen
        As for `CellCodec`.
    missing : {"error", "category"}, optional
        Missing values are refused, or kept as a category of their own; as the table says when not given, and refused
        where X is no `Table`.
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
    criterion: Literal["demographic_parity", "equalized_odds"] = "demographic_parity"
    reference: Hashable = "largest"

    is_invertible = True  # both maps are bijections, and a person's coin says which one was taken

    model_: CellModel = field(init=False)
    class_of_cell_: IntArray = field(init=False)

    def _fit(self, rows: LabelledRows, strengths: Sequence[float], seeds: Sequence[int]) -> list[Learnt | None]:
        self._check_strengths(strengths)
        self._check_cell_settings()
        check_choice("criterion", self.criterion, ("demographic_parity", "equalized_odds"))
        labels = self._read_label(rows)
        if self.criterion == "equalized_odds" and labels is None:
            raise DataError("criterion 'equalized_odds' speaks of labels; pass y.")
        if labels is not None:
            check_labels(rows.group, labels, self.groups_, self.label_classes)
        models = fit_cell_models(self, rows, labels, seeds, by_label=self.criterion == "equalized_odds")
        maps = {seed: self._maps(model) for seed, model in models.items()}
        return [self._compute_latent_laws(models[seed], *maps[seed], gamma) for gamma in strengths for seed in seeds]

    @property
    def is_randomised(self) -> bool:
        """Between the two ends of the frontier a coin picks the map."""
        return self.gamma not in (0, 1)

    @property
    def _cell_model(self) -> CellModel:
        self._check_fitted()
        return self.model_

    def _maps(self, model: CellModel) -> tuple[IntArray, IntArray]:
        """Every group's sort-and-match and label split to the reference, (K, m) each."""
        log_p_reference = model.log_reference(self.reference, self.groups_)
        matched = np.stack([sort_and_match(log_p_reference, log_p) for log_p in model.log_p])
        if model.scores is None:
            return matched, matched
        labels = model.scores.argmax(axis=1)
        split = np.stack([label_split(log_p_reference, log_p, labels) for log_p in model.log_p])
        return matched, split

    def _compute_latent_laws(self, model: CellModel, matched: IntArray, split: IntArray, gamma: float) -> Learnt:
        """The exact law of the encoded cell, and the class that each encoded cell suggests."""
        learnt: Learnt = {
            "model_": model,
            "matched_": matched,
            "split_": split,
            "latent_laws_": latent_laws(model.log_p, matched, split, gamma),
            "held_out_log_likelihood_": model.held_out_log_likelihood,
        }
        if model.label_log_p is not None:
            learnt["label_laws_"] = np.stack([latent_laws(p, matched, split, gamma) for p in model.label_log_p])
        if model.scores is None:
            return learnt
        # P(y | z), all groups alike: the scores of the rows that z stands for, weighted by their probability.
        p = np.exp(model.log_p)
        evidence = np.zeros_like(model.scores)
        for a in range(len(p)):
            mass = p[a][:, None] * model.scores
            evidence[matched[a]] += gamma * mass
            evidence[split[a]] += (1 - gamma) * mass
        total = evidence.sum(axis=1, keepdims=True)
        probabilities = np.divide(evidence, total, out=model.scores.copy(), where=total > 0)
        return learnt | {"class_probabilities_": probabilities, "class_of_cell_": probabilities.argmax(axis=1)}

    def _encode_rows(self, rows: Rows) -> pd.DataFrame | dict[Hashable, Values]:
        """The cell of each row, sent through its group's map that the person's coin picks."""
        return to_output(self.model_.codec, self._encode(rows), self.output)

    def _decode_rows(self, Z: TableLike, sensitive_features: Role | None, persons: Persons | None) -> pd.DataFrame:
        """The rows that were encoded as Z: needs the attribute, and the persons' identifiers for their coins."""
        rows = self._read_latent(Z, sensitive_features, persons, by_person=self.is_randomised)
        cells = cells_from_output(self.model_.codec, rows.X, self.output)
        persons = rows.named_persons() if self.is_randomised else rows.persons
        matched, split = (np.stack([inverse_map(f) for f in maps]) for maps in (self.matched_, self.split_))
        return self.model_.codec.decode(self._apply(matched, split, cells, rows, persons))

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """The class that each row's encoded cell suggests: no information but the cell is used."""
        values, cells = self.label_classes, self._encode(rows)
        place, known = self.model_.place(cells)
        classes = self.class_of_cell_[np.where(known, place, 0)]
        if not known.all():
            classes[~known] = self.model_.score(cells[~known]).argmax(axis=1)
        return values[classes]

    def latent_law(self) -> ExactLaw:
        """The laws of the encoded cell; the mass outside the m cells counts as if no two groups met there."""
        self._check_fitted()
        model, given = self.model_, {}
        if model.label_tails is not None:
            tails = [np.diag(tail) for tail in model.label_tails]
            laws = [np.concatenate(parts, axis=1) for parts in zip(self.label_laws_, tails, strict=True)]
            given = dict(zip(self.label_classes.tolist(), laws, strict=True))
        return ExactLaw(np.concatenate([self.latent_laws_, np.diag(model.tails)], axis=1), given)

    def known_cells(self) -> KnownCells:
        """The laws and both bijections."""
        self._check_fitted()
        return KnownCells(self.model_, self.output, self.latent_laws_, (self.matched_, self.split_))

    def _encode(self, rows: Rows) -> IntArray:
        persons = rows.persons_or_fresh() if self.is_randomised else rows.persons
        cells = self.model_.codec.encode(rows.columns, rows.outside)
        return self._apply(self.matched_, self.split_, cells, rows, persons)

    def _apply(self, matched: IntArray, split: IntArray, cells: IntArray, rows: Rows, persons: Persons) -> IntArray:
        place, known = self.model_.place(cells)
        place = np.where(known, place, 0)
        group = rows.map_group
        if self.is_randomised:
            coin = persons.uniform(self.key_, "matching") < self.gamma
            sent = np.where(coin, matched[group, place], split[group, place])
        else:
            sent = (matched if self.gamma == 1 else split)[group, place]
        if self.model_.support is not None:
            sent = self.model_.support[sent]
        return np.where(known, sent, cells)

    def _names_out(self) -> list[str]:
        return output_names(self.model_.codec, self.output)


def sort_and_match(log_p_reference: FloatArray, log_p_group: FloatArray) -> IntArray:
    """The bijection of smallest statistical distance: the k-th likeliest cell goes to the reference's k-th likeliest.

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
    log_p_reference, log_p_group
        As for `sort_and_match`, and so is what is returned.
    labels : array of shape (m,)
        The label predicted for each cell.

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
    """The bijection that undoes f.

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

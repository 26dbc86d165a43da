"""FairMatching: the best bijections between the cells of categorical tables, in closed form."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from fairflows.density.cell_density import MOST_CELLS_ENUMERATED, CellDensity
from fairflows.encoder.base import ExactLaw, IntArray, LabelledRows, Learnt, Rows
from fairflows.encoder.cell_maps import inverse_map, label_split, latent_laws, sort_and_match
from fairflows.encoder.cell_model import (
    CellModel,
    KnownCells,
    Output,
    cells_from_output,
    check_cell_settings,
    check_labels,
    fit_cell_models,
    output_dtypes,
    output_names,
    output_schema,
    to_output,
)
from fairflows.encoder.group_encoder import GroupEncoder
from fairflows.encoder.labels import Classifier
from fairflows.exceptions import DataError, check_choice
from fairflows.table.columns import Dtype
from fairflows.table.frames import TableLike
from fairflows.table.persons import Persons
from fairflows.table.schema import Schema
from fairflows.table.table import Role


@dataclass(eq=False, repr=False)
class FairMatching(GroupEncoder):
    """Encode categorical tables by matching the cells of each group to those of a reference.

    Two bijections are known in closed form: *sort-and-match*, which makes the groups' laws as alike as any bijection
    can, and the *label split*, which does so among cells of the same predicted label and so keeps the task. A keyed
    coin for each person picks the first with probability γ (Balunović et al., 2022).

    Parameters
    ----------
    gamma : float
        0 is the label split alone, the most accurate; 1 is sort-and-match alone, the fairest.
    density : {"made", "counts", "latent_class", "best"} or callable
        The density of cells p̂_a: an autoregressive network, smoothed counts, a latent-class mixture, the one of these
        with the best held-out likelihood, or a function that makes one from the level counts.
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
    groups_, classes_ : list, array
        The values of the sensitive attribute and of the label.
    latent_laws_ : ndarray of shape (K, m)
        The exact law of the encoded cell in each group, under the estimated densities.
    held_out_log_likelihood_ : ndarray of shape (K,)
        How well each density fits rows that it was not fitted on.

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
    criterion: Literal["demographic_parity", "equalized_odds"] = "demographic_parity"
    hidden: Sequence[int] = (50, 50)
    classifier: Classifier | None = None
    reference: Hashable = "largest"
    output: Output = "categories"
    n_bins: int = 4
    max_cells: int = MOST_CELLS_ENUMERATED
    kinds: Mapping[str, str] | None = None
    unseen: Literal["error", "other"] = "error"
    missing: Literal["error", "category"] | None = None
    device: str = "cpu"

    model_: CellModel = field(init=False)
    class_of_cell_: IntArray = field(init=False)

    def _fit(self, rows: LabelledRows, strengths: Sequence[float], seeds: Sequence[int]) -> list[Learnt | None]:
        self._check_strengths(strengths)
        check_cell_settings(self)
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
    def is_invertible(self) -> bool:
        """Both maps are bijections, and a person's coin says which one was taken."""
        return True

    @property
    def is_randomised(self) -> bool:
        """Between the two ends of the frontier a coin picks the map."""
        return self.gamma not in (0, 1)

    @property
    def encoded_schema(self) -> Schema:
        """What the encoded columns hold, where they are the table's own."""
        self._check_fitted()
        return output_schema(self.model_.codec, self.output)

    def encoded_dtypes(self) -> dict[str, Dtype]:
        """The types of the encoded columns."""
        self._check_fitted()
        return output_dtypes(self.model_.codec, self.output)

    def _maps(self, model: CellModel) -> tuple[IntArray, IntArray]:
        """Every group's sort-and-match and label split to the reference, (K, m) each."""
        log_p_reference = model.log_reference(self.reference, self.groups_)
        matched = np.stack([sort_and_match(log_p_reference, log_p) for log_p in model.log_p])
        if model.scores is None:
            return matched, matched
        labels = model.scores.argmax(axis=1)
        split = np.stack([label_split(log_p_reference, log_p, labels, labels) for log_p in model.log_p])
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

    def encode(self, rows: Rows) -> pd.DataFrame:
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

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame]:
        """n rows of each group drawn from its density p̂_a."""
        self._check_fitted()
        return self.model_.sample_rows(n, random_state)

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

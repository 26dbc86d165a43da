"""FairMatching: the best bijections between the cells of categorical tables, in closed form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from fairflows.codec.cell_codec import CellCodec
from fairflows.density.cell_density import MOST_CELLS_ENUMERATED
from fairflows.encoder.base import GroupEncoder, Rows
from fairflows.encoder.cell_maps import inverse_map, label_split, latent_laws, sort_and_match
from fairflows.encoder.cell_model import CellModel, check_labels, fit_cell_model, table_of_laws
from fairflows.encoder.cell_output import cells_from_output, output_names, to_output
from fairflows.encoder.checks import Output, check_cell_settings
from fairflows.exceptions import DataError
from fairflows.table.columns import check_choice
from fairflows.table.ledger import Ledger
from fairflows.table.persons import new_key

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


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
    kinds, unseen, missing
        As for `CellCodec`.
    sensitive, identifier : str, optional
        Columns of X that hold the sensitive attribute and name the person of a row; the identifier may be the index.
    key : bytes, optional
        The secret behind the coins; a new one at each fit when not given.
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
    >>> encoder = FairMatching(gamma=0.2, density="counts", identifier="row")
    >>> encoder = encoder.fit(train.X, train.y, sensitive_features=train.a)
    >>> Z = encoder.transform(test.X, sensitive_features=test.a)
    >>> Z.shape == test.X.shape
    True
    >>> encoder.inverse_transform(Z, sensitive_features=test.a).equals(test.X)
    True
    """

    model_: CellModel
    class_of_cell_: IntArray

    def __init__(
        self,
        gamma: float = 0.1,
        *,
        density: str | Callable[[Sequence[int]], Any] = "made",
        criterion: Literal["demographic_parity", "equalized_odds"] = "demographic_parity",
        hidden: Sequence[int] = (50, 50),
        classifier: Any = None,
        reference: Any = "largest",
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
        self.gamma = gamma
        self.density = density
        self.criterion = criterion
        self.hidden = hidden
        self.classifier = classifier
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
        X: Any,
        y: Any,
        sensitive_features: Any,
        sample_weight: Any,
        strengths: Sequence[float],
        seeds: Sequence[int],
        made: list[Self],
    ) -> None:
        self._check_strengths(strengths)
        check_cell_settings(self)
        check_choice("criterion", self.criterion, ("demographic_parity", "equalized_odds"))
        rows = self._read(X, sensitive_features, fit=True, allow_missing=self.missing == "category")
        labels = self._read_label(y, len(rows.X))
        if self.criterion == "equalized_odds" and labels is None:
            raise DataError("criterion 'equalized_odds' speaks of labels; pass y.")
        if labels is not None:
            check_labels(rows.group, labels, self.groups_, self.classes_)
        codec = CellCodec(n_bins=self.n_bins, unseen=self.unseen, missing=self.missing).fit(rows.X, self.kinds)
        cells = codec.encode(rows.X)
        weight = self._read_weight(sample_weight, rows.X)
        self.key_ = self.key if self.key is not None else new_key()
        self.ledger_ = Ledger.of(rows.X, rows.persons, self.key_)
        learnt = {name: value for name, value in self.__dict__.items() if name.endswith("_")}
        for j, seed in enumerate(seeds):
            model = fit_cell_model(
                codec,
                cells,
                rows.group,
                labels,
                groups=self.groups_,
                density=self.density,
                hidden=self.hidden,
                classifier=self.classifier,
                sample_weight=weight,
                max_cells=self.max_cells,
                random_state=seed,
                device=self.device,
                by_label=self.criterion == "equalized_odds",
            )
            matched, split = self._maps(model)
            for i, gamma in enumerate(strengths):
                encoder = made[i * len(seeds) + j]
                encoder.__dict__.update(learnt, model_=model, matched_=matched, split_=split)
                encoder._compute_latent_laws(gamma)

    def _maps(self, model: CellModel) -> tuple[IntArray, IntArray]:
        """Every group's sort-and-match and label split to the reference, (K, m) each."""
        log_p_reference = model.log_reference(self.reference, self.groups_)
        matched = np.stack([sort_and_match(log_p_reference, log_p) for log_p in model.log_p])
        if model.scores is None:
            return matched, matched
        labels = model.scores.argmax(axis=1)
        split = np.stack([label_split(log_p_reference, log_p, labels, labels) for log_p in model.log_p])
        return matched, split

    def _compute_latent_laws(self, gamma: float) -> None:
        """The exact law of the encoded cell, and the class that each encoded cell suggests."""
        model = self.model_
        self.latent_laws_ = latent_laws(model.log_p, self.matched_, self.split_, gamma)
        self.held_out_log_likelihood_ = model.held_out_log_likelihood
        if model.label_log_p is not None:
            laws = [latent_laws(log_p, self.matched_, self.split_, gamma) for log_p in model.label_log_p]
            self.label_laws_ = np.stack(laws)
        if model.scores is None:
            return
        # P(y | z), all groups alike: the scores of the rows that z stands for, weighted by their probability.
        p = np.exp(model.log_p)
        evidence = np.zeros_like(model.scores)
        for a in range(len(p)):
            mass = p[a][:, None] * model.scores
            evidence[self.matched_[a]] += gamma * mass
            evidence[self.split_[a]] += (1 - gamma) * mass
        total = evidence.sum(axis=1, keepdims=True)
        self.class_probabilities_ = np.divide(evidence, total, out=model.scores.copy(), where=total > 0)
        self.class_of_cell_ = self.class_probabilities_.argmax(axis=1)

    def transform(self, X: Any, *, sensitive_features: Any = None) -> Any:
        """Encode rows: each goes through its group's map that the person's coin picks."""
        rows = self._read(X, sensitive_features, allow_missing=self.missing == "category")
        return self._wrap_output(X, to_output(self.model_.codec, self._encode(rows), self.output))

    def inverse_transform(self, Z: Any, *, sensitive_features: Any = None) -> Any:
        """The rows that were encoded as Z: needs the attribute, and the persons' identifiers for their coins."""
        rows = self._read_latent(Z, sensitive_features)
        cells = cells_from_output(self.model_.codec, rows.X, self.output)
        matched, split = (np.stack([inverse_map(f) for f in maps]) for maps in (self.matched_, self.split_))
        return self._wrap_output(Z, self.model_.codec.decode(self._apply(matched, split, cells, rows)))

    def predict(self, X: Any, *, sensitive_features: Any = None) -> npt.NDArray[Any]:
        """The class that each row's encoded cell suggests: no information but the cell is used."""
        rows = self._read(X, sensitive_features, allow_missing=self.missing == "category")
        self._need_label()
        cells = self._encode(rows)
        place, known = self.model_.place(cells)
        classes = self.class_of_cell_[np.where(known, place, 0)]
        if not known.all():
            classes[~known] = self.model_.score(cells[~known]).argmax(axis=1)
        return self.classes_[classes]

    def laws_given(self, label: Any) -> FloatArray:
        """The exact laws of the encoded cell given a label, (K, m + K); the last K columns: the mass outside the m."""
        check_is_fitted(self)
        labels = [] if self.classes_ is None else self.classes_.tolist()
        if self.model_.label_tails is None or label not in labels:
            raise ValueError(f"there are no densities given label {label!r}: criterion is {self.criterion!r}.")
        y = labels.index(label)
        return np.concatenate([self.label_laws_[y], np.diag(self.model_.label_tails[y])], axis=1)

    def log_density_table(self, n: int, random_state: int = 0) -> FloatArray:
        """Draws from every group's latent law and their log-probability under every group, (n, K drawn, K density)."""
        check_is_fitted(self)
        return table_of_laws(self.latent_laws_, self.model_.tails, n, np.random.default_rng(random_state))

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame]:
        """n rows of each group drawn from its density p̂_a."""
        check_is_fitted(self)
        return self.model_.sample_rows(n, random_state)

    def _encode(self, rows: Rows) -> IntArray:
        return self._apply(self.matched_, self.split_, self.model_.codec.encode(rows.X), rows)

    def _apply(self, matched: IntArray, split: IntArray, cells: IntArray, rows: Rows) -> IntArray:
        place, known = self.model_.place(cells)
        place = np.where(known, place, 0)
        if 0 < self.gamma < 1:
            coin = rows.keyed().uniform(self.key_, "matching") < self.gamma
            sent = np.where(coin, matched[rows.group, place], split[rows.group, place])
        else:
            sent = (matched if self.gamma == 1 else split)[rows.group, place]
        if self.model_.support is not None:
            sent = self.model_.support[sent]
        return np.where(known, sent, cells)

    def _names_out(self) -> list[str]:
        return output_names(self.model_.codec, self.output)

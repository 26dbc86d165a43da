"""FairMatching: each group's combinations of levels, matched to those of the largest group (the paper's categories).

A law p̂_a of combinations is fitted to each group. A map is an integer array f: a person of the group with combination
x is released with combination f[x]. The reference, the largest group, keeps its own. Of K groups each is matched to the
same reference; any two are then matched to each other as well as if one of them had been the reference, so the choice
of it changes which combinations carry the latent, never a distance.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from jaxtyping import Float, Int
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from fairflows.codec.combination_codec import BinLevels, CombinationCodec, one_hot
from fairflows.density.combinations import CombinationCounts, CombinationDensity, SmoothedCounts
from fairflows.encoder.base import EncodedColumns, Encoder, IntArray, LatentLaw, Traits, as_input_type, label_values
from fairflows.encoder.label import LabelsLike
from fairflows.encoder.rows import FloatArray, Groups, Rows, RowsLike, TrainingRows, read_latent
from fairflows.exceptions import DataError, check_count, check_share
from fairflows.table.columns import Schema
from fairflows.table.domain import Domain, Levels
from fairflows.table.frames import Frame, TableLike
from fairflows.table.keys import NEW_AT_EACH_FIT, KeySetting
from fairflows.table.persons import Persons
from fairflows.table.roles import Role

_HELD_OUT = 0.2
_MOST_LEVELS = 10_000  # a density keeps a number for every pair of levels, in each group
_MOST_COMBINATIONS = 10_000_000  # of all groups together, which take up to three gigabytes
_ROWS_PER_CHUNK = 2**18


@dataclass(eq=False, repr=False)
class FairMatching(Encoder):
    """Encode categorical tables by matching each group's combinations of levels to those of the largest group.

    A row is one combination of levels. Two bijections of combinations have a closed form (Balunović et al., 2022).
    *Sort-and-match* pairs them in the order of their probability; no bijection has a smaller Δ = ½ Σ_i |p̂_Z0(i) −
    p̂_Z1(i)| (Lemma 5.4). The *label split* does the same among combinations of one predicted label, and so keeps the
    task. A keyed coin of each person picks the first with probability γ.

    Parameters
    ----------
    gamma : float, default=0.1
        Probability γ of sort-and-match: 0 is the most accurate, 1 the fairest.
    density : {"made", "counts"}, default="made"
        The density of combinations p̂_a: an autoregressive network, or smoothed counts.
    hidden : sequence of int, default=(50, 50)
        Hidden layers of the network.
    n_bins : int, default=4
        Number of quantile bins of a number column with many values.
    kinds : dict of str to {"continuous", "discrete", "categorical"}, default=None
        The content of columns whose types do not tell it.
    sensitive, identifier : str, default=None
        Columns of X that hold the sensitive attribute and name the person of a row; the identifier may be the index.
    key : bytes, default=None
        Secret behind the coins, at least 16 bytes; by default a new one at each fit.
    random_state : int, default=0
        Seed of the densities.

    Attributes
    ----------
    held_out_log_likelihood_ : ndarray of shape (K,)
        Mean log p̂_a of rows that the densities were not fitted to.
    latent_laws_ : ndarray of shape (K, m)
        The exact law of the encoded combination in each group, under the estimated densities.

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
    density: Literal["made", "counts"] = "made"
    hidden: Sequence[int] = (50, 50)
    n_bins: int = 4
    kinds: Mapping[str, str] | None = None
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0

    model_: CombinationModel = field(init=False)
    matched_: Int[IntArray, "K m"] = field(init=False)
    split_: Int[IntArray, "K m"] = field(init=False)
    held_out_log_likelihood_: Float[FloatArray, " K"] = field(init=False)
    latent_laws_: Float[FloatArray, "K m"] = field(init=False)
    class_of_code_: Int[IntArray, " m"] | None = field(init=False)

    @property
    def traits(self) -> Traits:
        """Both maps are bijections; between the two ends of the frontier a coin picks one of them."""
        return Traits(invertible=True, randomised=self.gamma not in (0, 1))

    def learn(self, rows: TrainingRows) -> None:
        """Fit the densities of combinations and the classifier, and match the groups' combinations."""
        check_share("gamma", self.gamma)
        check_count("n_bins", self.n_bins, 2)
        label = rows.label_with_classes("FairMatching")
        y = None if label is None else label.values
        self.model_, self.held_out_log_likelihood_ = _fit_combination_model(self, rows, y)
        # A number that is a level of its own is unknown where training did not have it.
        levels = {n: part for n, part in self.model_.codec.levels_.items() if not isinstance(part, BinLevels)}
        self.domain_ = Domain({**rows.domain.columns, **levels})
        log_p, scores = self.model_.log_p, self.model_.scores
        reference = log_p[np.bincount(rows.group).argmax()]
        self.matched_ = self.split_ = np.stack([sort_and_match(reference, of_group) for of_group in log_p])
        if scores is not None:
            labels = scores.argmax(axis=1)
            self.split_ = np.stack([label_split(reference, of_group, labels) for of_group in log_p])
        parts = {str(name): part for name, part in self.model_.codec.levels_.items()}
        schema = Schema({name: part.kind for name, part in parts.items()})
        self.output_ = EncodedColumns({name: part.dtype for name, part in parts.items()}, schema)
        self._mix()

    def fit_path(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Self]:
        """Fit an encoder for every gamma and seed; densities and maps depend on the seed alone."""
        for gamma in strengths:
            check_share("gamma", gamma)
        fitted = super().fit_path(X, y, sensitive_features=sensitive_features, strengths=strengths[:1], seeds=seeds)
        found = [copy.copy(encoder) for _ in strengths for encoder in fitted]
        for gamma, encoder in zip(np.repeat(strengths, len(seeds)).tolist(), found, strict=True):
            encoder.gamma = gamma
            encoder._mix()
        return found

    def _mix(self) -> None:
        """Set the exact law of the encoded combination, and the class that each one suggests."""
        model, matched, split, gamma = self.model_, self.matched_, self.split_, self.gamma
        self.latent_laws_ = latent_laws(model.log_p, matched, split, gamma)
        self.class_of_code_ = None
        if model.scores is None:
            return
        # P(y | z), all groups alike: the scores of the rows that z stands for, weighted by their probability.
        evidence = np.zeros_like(model.scores)
        for p, f, g in zip(np.exp(model.log_p), matched, split, strict=True):
            mass = p[:, None] * model.scores
            evidence[f] += gamma * mass
            evidence[g] += (1 - gamma) * mass
        total = evidence.sum(axis=1, keepdims=True)
        self.class_of_code_ = np.divide(evidence, total, out=model.scores.copy(), where=total > 0).argmax(axis=1)

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Send the combination of each row through its group's map that the person's coin picks."""
        return self.model_.codec.decode(self._encoded_codes(rows))

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
        check_is_fitted(self, "ledger_")
        randomised = self.traits.randomised
        rows = read_latent(self, X, sensitive_features, persons, by_person=randomised)
        if randomised and not rows.persons.named:
            raise DataError("Decoding repeats each person's coin, so the rows must be named: give identifier=....")
        codes = combinations_of_encoded(self.model_.codec, rows.X)
        matched, split = (np.stack([inverse_map(f) for f in maps]) for maps in (self.matched_, self.split_))
        decoded = self.model_.codec.decode(self._apply(matched, split, codes, rows, rows.persons))
        return as_input_type(X, decoded)

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Predict the class that each row's encoded combination suggests, from that alone."""
        return label_values(self)[np.asarray(self.class_of_code_)[self._encoded_codes(rows)]]

    def latent_law(self) -> ExactLaw:
        """Return the laws of the encoded combination."""
        check_is_fitted(self, "ledger_")
        return ExactLaw(self.latent_laws_, self.model_, (self.matched_, self.split_))

    def _encoded_codes(self, rows: Rows) -> Int[IntArray, " n"]:
        persons = rows.persons_or_fresh() if self.traits.randomised else rows.persons
        codes = self.model_.codec.encode(rows.X)
        return self._apply(self.matched_, self.split_, codes, rows, persons)

    def _apply(
        self,
        matched: Int[IntArray, "K m"],
        split: Int[IntArray, "K m"],
        codes: Int[IntArray, " n"],
        rows: Rows,
        persons: Persons,
    ) -> Int[IntArray, " n"]:
        group = rows.encoding_group
        if not self.traits.randomised:
            return (matched if self.gamma == 1 else split)[group, codes]
        coin = persons.uniform(self.key_, "matching") < self.gamma
        return np.where(coin, matched[group, codes], split[group, codes])


def sort_and_match(
    log_p_reference: Float[FloatArray, " m"], log_p_group: Float[FloatArray, " m"]
) -> Int[IntArray, " m"]:
    """Return the bijection of smallest distance: the k-th likeliest goes to the reference's k-th likeliest.

    With i and j sorting p_ref and p_group, f(x_{j_k}) = x_{i_k}. Swapping two images of an optimal map that is out of
    order cannot raise Δ = ½ Σ_z |p_ref(z) − p_group(f⁻¹(z))|, so the sorted map attains the minimum (Lemma
    5.4 of Balunović et al., 2022). Equal probabilities are matched in the order of their codes, so that a law matched
    to itself stays put.

    Examples
    --------
    >>> sort_and_match(np.log([0.2, 0.3, 0.5]), np.log([0.6, 0.1, 0.3]))
    array([2, 0, 1])
    """
    return label_split(log_p_reference, log_p_group, np.zeros(len(log_p_group)))


def label_split(
    log_p_reference: Float[FloatArray, " m"], log_p_group: Float[FloatArray, " m"], labels: npt.ArrayLike
) -> Int[IntArray, " m"]:
    """Sort-and-match within each predicted label, so that a combination goes to one with the same prediction.

    Examples
    --------
    >>> label_split(np.log([0.2, 0.3, 0.5]), np.log([0.6, 0.1, 0.3]), [0, 0, 1])
    array([1, 0, 2])
    """
    by_label = np.asarray(labels)
    f = np.empty(len(by_label), dtype=np.int64)
    f[np.lexsort((log_p_group, by_label))] = np.lexsort((log_p_reference, by_label))
    return f


def inverse_map(f: Int[IntArray, " m"]) -> Int[IntArray, " m"]:
    """Return the bijection that undoes f."""
    inverse = np.empty_like(f)
    inverse[f] = np.arange(len(f))
    return inverse


def latent_laws(
    log_p: Float[FloatArray, "K m"], matched: Int[IntArray, "K m"], split: Int[IntArray, "K m"], gamma: float
) -> Float[FloatArray, "K m"]:
    """Return laws of the released combination, one row per group, when a coin picks sort-and-match with probability γ.

    p_Za(z) = γ · p_a(f_a⁻¹(z)) + (1 − γ) · p_a(g_a⁻¹(z)), with f_a the sort-and-match and g_a the label split.
    γ = 0 is the label split alone, the most accurate; γ = 1 is sort-and-match alone, the fairest.
    """
    p = np.exp(log_p)
    by_matching, by_splitting = np.empty_like(p), np.empty_like(p)
    np.put_along_axis(by_matching, matched, p, axis=1)
    np.put_along_axis(by_splitting, split, p, axis=1)
    return gamma * by_matching + (1.0 - gamma) * by_splitting


@dataclass(frozen=True)
class CombinationModel:
    """Laws of K groups over the m combinations of a table."""

    codec: CombinationCodec  # table rows to combinations and back
    densities: list[CombinationDensity]  # the K densities p̂_a
    log_p: Float[FloatArray, "K m"]  # log p̂_a of each combination
    scores: Float[FloatArray, "m C"] | None  # the classifier's probability of each class in each combination


@dataclass(frozen=True)
class ExactLaw(LatentLaw):
    """Laws over finitely many values; of combinations of levels, also all that an adversary with the encoder knows."""

    laws: Float[FloatArray, "K m"]
    model: CombinationModel | None = None  # the groups' laws over combinations before encoding
    maps: tuple[Int[IntArray, "K m"], ...] = ()  # the bijections that a coin chooses from

    def exact(self) -> Float[FloatArray, "K m"]:
        """Return the laws."""
        return self.laws

    def log_density_table(self, n: int, random_state: int = 0, label: Hashable = None) -> Float[FloatArray, "{n} K K"]:
        """Draw from every group's law; return the log-probabilities under every group."""
        generator = np.random.default_rng(random_state)
        draws = [generator.choice(len(law), n, p=law / law.sum()) for law in self.laws]
        with np.errstate(divide="ignore"):
            log_laws = np.log(self.laws)
        return np.stack([log_laws[:, values].T for values in draws], axis=1)

    def sample_rows(self, n: int, random_state: int = 0) -> list[pd.DataFrame] | None:
        """Draw n rows of the table from each group's density of combinations."""
        if self.model is None:
            return None
        rng = np.random.default_rng(random_state)
        return [self.model.codec.from_levels(density.sample(n, rng)) for density in self.model.densities]


def _fit_combination_model(
    settings: FairMatching, rows: TrainingRows, y: Int[Groups, " n"] | None
) -> tuple[CombinationModel, Float[FloatArray, " K"]]:
    """Fit every group's density and the classifier, and evaluate both everywhere; return held-out likelihoods."""
    codec = CombinationCodec(n_bins=settings.n_bins).fit(rows.X, rows.kinds)
    _check_size(codec, len(rows.groups))
    codes = codec.encode(rows.X)
    densities, held_out = _fit_densities(settings, codec.shape_, codes, rows.group)
    log_p = np.stack([density.log_prob_of_all() for density in densities])
    scores = None if y is None else _classes_in_combinations(codec, codes, rows.group, y)
    return CombinationModel(codec, densities, log_p, scores), held_out


def _check_size(codec: CombinationCodec, n_groups: int) -> None:
    """Raise for more levels than a density takes, or more combinations than can be listed."""
    if sum(codec.shape_) > _MOST_LEVELS:
        raise DataError(
            f"A density of combinations takes at most {_MOST_LEVELS:,} levels in all columns; got "
            f"{sum(codec.shape_):,}: join rare levels, or leave out the column with the most of them."
        )
    if codec.n_combinations_ * n_groups > _MOST_COMBINATIONS:
        raise DataError(
            f"FairMatching takes at most {_MOST_COMBINATIONS:,} combinations; got {codec.n_combinations_:,} in each of "
            f"{n_groups} groups. Take fewer columns or bins (n_bins), or FairTree."
        )


def _classes_in_combinations(
    codec: CombinationCodec, codes: Int[IntArray, " n"], group: Int[Groups, " n"], y: Int[Groups, " n"]
) -> Float[FloatArray, "m C"]:
    """Fit a classifier of the label from one-hot columns; return its probabilities in each combination.

    All groups weigh the same.
    """
    sizes = np.bincount(group)
    balanced = (len(group) / len(sizes) / sizes)[group]
    columns = one_hot(codec.levels_of(codes), codec.shape_)
    classifier = LogisticRegression(max_iter=1000).fit(columns, y, sample_weight=balanced)
    chunks = np.array_split(np.arange(codec.n_combinations_), -(-codec.n_combinations_ // _ROWS_PER_CHUNK))
    return np.concatenate([classifier.predict_proba(one_hot(codec.levels_of(part), codec.shape_)) for part in chunks])


def combinations_of_encoded(codec: CombinationCodec, frame: pd.DataFrame) -> Int[IntArray, " n"]:
    """Return the combinations behind encoded rows."""
    return codec.codes_of([Levels.codes(part, frame.iloc[:, j]) for j, part in enumerate(codec.levels_.values())])


def _fit_densities(
    settings: FairMatching, levels: Sequence[int], codes: Int[IntArray, " n"], group: Int[Groups, " n"]
) -> tuple[list[CombinationDensity], Float[FloatArray, " K"]]:
    """Fit a density of each group's combinations, and its held-out likelihood."""
    rng = np.random.default_rng(settings.random_state)
    densities, scores = [], []
    for a in range(int(group.max()) + 1):
        of_group = codes[group == a]
        fitted, rest = _held_out(len(of_group), rng)
        held = CombinationCounts.of(of_group[rest])
        density = _density(settings, levels).fit(CombinationCounts.of(of_group[fitted]), held)
        densities.append(density)
        scores.append(held.mean(density.log_prob(held.codes)))
    return densities, np.array(scores)


def _density(settings: FairMatching, levels: Sequence[int]) -> CombinationDensity:
    if settings.density == "made":
        from fairflows.density.estimated import CategoricalMADE

        return CategoricalMADE(levels, settings.hidden, random_state=settings.random_state)
    if settings.density == "counts":
        return SmoothedCounts(levels)
    raise DataError(f"density must be 'made' or 'counts'; got {settings.density!r}.")


def _held_out(n: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return training rows and a held-out fifth, which a density is tuned by; of few rows, all of them twice."""
    if n < 10:
        return np.arange(n), np.arange(n)
    order = rng.permutation(n)
    cut = max(1, round(_HELD_OUT * n))
    return np.sort(order[cut:]), np.sort(order[:cut])

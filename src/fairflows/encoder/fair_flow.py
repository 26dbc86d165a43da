"""FairFlow: one invertible flow per group, trained so that the encoded groups look alike (the paper's encoder)."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from fairflows.codec.model_space import Codec
from fairflows.encoder.base import (
    EncodedColumns,
    Encoder,
    Traits,
    as_input_type,
    begin_fit,
    label_values,
)
from fairflows.encoder.fitted_flow import FittedFlow, FlowLaw
from fairflows.encoder.label import LabelsLike
from fairflows.encoder.rows import FloatArray, Groups, Rows, RowsLike, TrainingRows, read_latent
from fairflows.exceptions import DataError, check_choice, check_share
from fairflows.table.frames import Frame, TableLike
from fairflows.table.keys import NEW_AT_EACH_FIT, KeySetting
from fairflows.table.ledger import Ledger
from fairflows.table.persons import Persons
from fairflows.table.roles import Role
from fairflows.training.history import LossHistory

if TYPE_CHECKING:
    from torch.distributions import Distribution

    from fairflows.bijection import Bijection
    from fairflows.density import Density

GroupDensity: TypeAlias = "Density | Distribution"
"""One group's density: one of `fairflows.density`, or a `torch.distributions` object."""

DensityLike: TypeAlias = "str | GroupDensity | Sequence[GroupDensity] | Mapping[Hashable, GroupDensity]"
"""A density by name, one for all groups to be fitted, or one for each group."""


@dataclass(eq=False, repr=False)
class FairFlow(Encoder):
    """Encode rows by Fair Normalizing Flows: z = f_a(x), one bijection per group.

    Trained by Algorithm 1 of Balunović et al. (2022). With densities p̂_a of the groups, the densities of the encoded
    groups are exact, log p̂_Za(z) = log p̂_a(f_a⁻¹(z)) + log |det ∂f_a⁻¹/∂z| (eq. 4). Training minimises γ·L_KL +
    (1 − γ)·L_clf, where L_KL is half of their symmetrised KL divergence and L_clf the loss of a classifier on z.

    Parameters
    ----------
    gamma : float, default=0.1
        Weight γ of fairness: 0 for the task alone, 1 for fairness alone.
    bijection : {"realnvp", "spline"} or Bijection, default="realnvp"
        Affine couplings, rational-quadratic spline couplings, or a bijection of your own. Each fit makes it anew for
        the features and groups of the table.
    n_blocks : int, default=4
        Number of coupling blocks.
    hidden : sequence of int, default=(50, 50)
        Hidden layers of the network in each block.
    head : sequence of int, default=(100,)
        Hidden layers of the classifier on z.
    density : str, density, bijection, or one for each group, default="auto"
        "mixture" (Gaussians, their number chosen by BIC), "realnvp", or "autoregressive" (splines); "auto" takes the
        better of mixture and splines for each group, by the likelihood of held-out rows. A density to fit, of
        `fairflows.density` or your own; a bijection or an unfitted zuko flow, whose weights are fitted; or known
        densities in the table's units, one for each group, as a list in the order of the sorted groups or as a dict.
        Choose by ``held_out_log_likelihood_`` and ``density_gaps_``, never by Δ: a density that is too simple makes the
        groups look more alike than they are.
    criterion : {"demographic_parity", "equalized_odds", "equal_opportunity"}, default="demographic_parity"
        Make the laws of z alike; or those of z given each label, by the mean divergence; or given the last label.
    scalarisation : {"convex", "chebyshev"}, default="convex"
        How the two losses become one.
    n_epochs : int or "auto", default="auto"
        Number of epochs. An epoch is a pass over the smallest group. "auto" scales the paper's setting to the table.
    batch_size : int or "auto", default="auto"
        Rows of each group in a step.
    ramp_epochs : int or "auto", default="auto"
        Epochs over which γ rises from 0.
    learning_rate : float, default=0.01
        Learning rate of Adam, divided by ten after one and two thirds of the epochs.
    weight_decay : float, default=1e-4
        Weight decay of Adam.
    n_restarts : int, default=1
        Starts from different weights, trained at once. The start of least loss in the last third of the epochs is
        kept.
    validation : float, default=0.1
        Share of the persons that is held out for the likelihood of the densities.
    alpha : float, default=0.05
        The training range is scaled into [alpha/2, 1 − alpha/2].
    dequantise : bool, default=True
        Add noise to every value on a grid, because values on a grid tell an adversary which encoder made them. A person
        keeps their noise; training draws it anew in every step.
    smoothing : float or "auto", default="auto"
        σ of normal noise that is added to numbers, not to categories, in model space, where the training range is about
        seven wide. What it blurs no density can get wrong. "auto" takes the least σ of 0,
        .1, .2 and .3 at which the densities explain held-out rows about as well as their own draws; .2 where fewer than
        100 rows of a group are held out; and 0 for known densities.
    turn : bool, default=True
        Reflect a group about its mean before its flow, where its classes lie the other way round than those of the
        largest group.
    kinds : dict of str to {"continuous", "discrete", "categorical"}, default=None
        Kinds of columns whose types do not tell it.
    sensitive, identifier : str, default=None
        Columns of X that hold the sensitive attribute and name the person of a row; the identifier may be the index.
    key : bytes, default=None
        Secret behind the noise, at least 16 bytes; by default a new one at each fit.
    random_state : int, default=0
        Seed of densities, weights and batches.
    device : str, default="auto"
        "auto" takes a CUDA GPU where there is one; "mps" is the GPU of a Mac, which has no double precision and so no
        known densities.
    progress : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    held_out_log_likelihood_ : ndarray of shape (K,), or None
        Mean log p̂_a, in the table's units, of held-out rows.
    density_gaps_ : ndarray of shape (K,), or None
        How well a classifier tells held-out rows from draws of p̂_a: an estimate of a lower bound on TV(p̂_a, p_a).
    smoothing_ : float
        σ of the smoothing that was used.
    history_ : LossHistory
        The losses of every epoch; ``history_.plot()`` draws them.

    Examples
    --------
    >>> from fairflows.paper import make_gaussians
    >>> table, densities = make_gaussians(600, random_state=0)
    >>> encoder = FairFlow(gamma=0.5, density=densities, n_epochs=5).fit(table.X, table.y, sensitive_features=table.a)
    >>> Z = encoder.transform(table.X, sensitive_features=table.a)
    >>> back = encoder.inverse_transform(Z, sensitive_features=table.a)
    >>> bool(np.allclose(back, table.X))
    True
    """

    gamma: float = 0.1
    _: KW_ONLY
    bijection: Literal["realnvp", "spline"] | Bijection = "realnvp"
    n_blocks: int = 4
    hidden: Sequence[int] = (50, 50)
    head: Sequence[int] = (100,)
    density: DensityLike = "auto"
    criterion: Literal["demographic_parity", "equalized_odds", "equal_opportunity"] = "demographic_parity"
    scalarisation: Literal["convex", "chebyshev"] = "convex"
    n_epochs: int | Literal["auto"] = "auto"
    batch_size: int | Literal["auto"] = "auto"
    ramp_epochs: int | Literal["auto"] = "auto"
    learning_rate: float = 0.01
    weight_decay: float = 1e-4
    n_restarts: int = 1
    validation: float = 0.1
    alpha: float = 0.05
    dequantise: bool = True
    smoothing: float | Literal["auto"] = "auto"
    turn: bool = True
    kinds: Mapping[str, str] | None = None
    sensitive: str | list[str] | None = None
    identifier: str | None = None
    key: KeySetting = NEW_AT_EACH_FIT
    random_state: int = 0
    device: str = "auto"
    progress: bool = False

    codec_: Codec = field(init=False)
    flow_: FittedFlow = field(init=False)

    @property
    def traits(self) -> Traits:
        """Invertible; values on a grid and numbers get noise (before the fit: whether they would)."""
        randomised = self.codec_.is_randomised if "codec_" in vars(self) else self.dequantise or self.smoothing != 0
        return Traits(invertible=True, randomised=randomised)

    def learn(self, rows: TrainingRows) -> None:
        """Train the flow at its own gamma and seed."""
        (flow,) = self._train(rows, [self.gamma], [self.random_state])
        if flow is None:
            raise DataError("Training of FairFlow diverged: its loss is not finite.")
        self.flow_ = flow

    def fit_path(
        self,
        X: RowsLike,
        y: LabelsLike | None = None,
        *,
        sensitive_features: Role | None = None,
        strengths: Sequence[float],
        seeds: Sequence[int],
    ) -> list[Self]:
        """Train the flows of all gammas and seeds as one stack; one that diverged is returned unfitted."""
        shared = clone(self)
        rows = begin_fit(shared, X, y, sensitive_features)
        flows = shared._train(rows, strengths, seeds)
        ledger, found = Ledger.of(rows.X, rows.persons, rows.key), []
        for (gamma, seed), flow in zip(product(strengths, seeds), flows, strict=True):
            encoder = clone(self) if flow is None else copy.copy(shared)
            encoder.gamma, encoder.random_state = gamma, seed
            if flow is not None:
                encoder.flow_, encoder.ledger_ = flow, ledger
            found.append(encoder)
        return found

    def _train(self, rows: TrainingRows, gammas: Sequence[float], seeds: Sequence[int]) -> list[FittedFlow | None]:
        """Fit the codec, and train a flow for every gamma and seed."""
        from fairflows.encoder.flow_fitting import fit_flows

        for gamma in gammas:
            check_share("gamma", gamma)
        check_choice("criterion", self.criterion, ("demographic_parity", "equalized_odds", "equal_opportunity"))
        label = rows.label_with_classes("FairFlow")
        labels = None if label is None else label.values
        if self.criterion != "demographic_parity" and labels is None:
            raise DataError(f"criterion {self.criterion!r} speaks of labels; pass y.")
        self.codec_ = Codec(alpha=self.alpha, dequantise=self.dequantise, key=rows.key).fit(rows.X, labels, rows.kinds)
        self.output_ = EncodedColumns.of_numbers(f"z{j}" for j in range(len(self.codec_.names_)))
        return fit_flows(self, labels, rows, gammas, seeds)

    @property
    def held_out_log_likelihood_(self) -> Float[FloatArray, " K"] | None:
        """Mean log p̂_a, in table units, of held-out rows of each group; None when none were held out."""
        check_is_fitted(self, "ledger_")
        return self.flow_.held_out_log_likelihood

    @property
    def density_gaps_(self) -> Float[FloatArray, " K"] | None:
        """How far each density is from held-out rows, at least; None when these are too few, or for known densities."""
        check_is_fitted(self, "ledger_")
        return self.flow_.gaps

    @property
    def smoothing_(self) -> float:
        """σ of the noise that numbers get in model space."""
        check_is_fitted(self, "ledger_")
        return self.codec_.smoothing

    @property
    def history_(self) -> LossHistory:
        """The losses of every epoch."""
        check_is_fitted(self, "ledger_")
        return self.flow_.history

    def encode(self, rows: Rows) -> pd.DataFrame:
        """Return z = f_a(x) of each row; a person's noise is always the same.

        A row's encoding depends on the row, its person and its group alone, up to rounding: a matrix product rounds by
        the processor and by the place of the row in its batch, so that float64 encodings of one row agree to about
        1e-12. Rounded to float32, as files are written, they are the same number, or neighbours where the value lies on
        a rounding tie.
        """
        persons = rows.persons_or_fresh() if self.codec_.is_randomised else rows.persons
        x = self.codec_.encode(rows.X, persons)[0]
        z, group = np.empty_like(x), rows.encoding_group
        for a in np.unique(group):
            z[group == a] = self.flow_.encode(x[group == a], a)
        return pd.DataFrame(z, columns=list(self.output_.dtypes))

    def inverse_transform(
        self, X: TableLike, *, sensitive_features: Role | None = None, persons: Persons | None = None
    ) -> Frame:
        """Return the rows that were encoded as X, each decoded by its group's flow.

        Values on a grid and categories come back exactly. So do smoothed numbers of persons with names, whose noise the
        key tells. Those of others come back as they were smoothed, set on their grid: the original only where σ is far
        below a step of the grid.

        Parameters
        ----------
        X : frame or array
            Encoded rows.
        sensitive_features : array, default=None
            Their groups, unless a column of X holds them.
        persons : Persons, default=None
            Who is who; by default as the identifier says, where X has it.
        """
        check_is_fitted(self, "ledger_")
        rows = read_latent(self, X, sensitive_features, persons, by_person=False)
        return as_input_type(X, self.decode(rows.X.to_numpy(dtype=np.float64), rows.group, rows.persons))

    def decode(
        self, z: Float[FloatArray, "n D"], group: Int[Groups, " n"], persons: Persons | None = None
    ) -> pd.DataFrame:
        """Return the rows f_a⁻¹(z) behind points, each of a group; without their smoothing, given named persons."""
        x = np.empty_like(z)
        for a in np.unique(group):
            x[group == a] = self.flow_.decode(z[group == a], a)[0]
        return self.codec_.decode(x, persons)

    def predict_rows(self, rows: Rows) -> Shaped[np.ndarray, " n"]:
        """Predict the class by the encoder's own classifier on z."""
        return label_values(self)[self.flow_.predicted(self.encode(rows).to_numpy())]

    def latent_law(self) -> FlowLaw:
        """Return the groups' laws of z under the densities that the encoder was trained with."""
        check_is_fitted(self, "ledger_")
        return FlowLaw(self.flow_, self.codec_, self.classes_, self.device)

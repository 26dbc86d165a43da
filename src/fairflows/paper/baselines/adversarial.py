"""The adversarial baselines, each with its own networks and loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from fairflows.bijection import StackedMLP
from fairflows.bijection.networks import augment
from fairflows.encoder.base import Traits
from fairflows.exceptions import check_choice
from fairflows.paper.baselines.neural import (
    BaselineBatch,
    BaselineNetworks,
    Loss,
    NeuralBaseline,
    Side,
    TaskRows,
    Turns,
    check_weights,
    mean_cross_entropy,
)


@dataclass(eq=False, repr=False, kw_only=True)
class AdversarialBaseline(NeuralBaseline):
    """Base of the baselines with an adversary, whose hidden layers are one more setting."""

    adversary: Sequence[int] = (50,)
    players_: Players = field(init=False)


@dataclass(eq=False, repr=False, kw_only=True)
class AttributeBaseline(AdversarialBaseline):
    """Base of those whose encoder may read the sensitive attribute, as their authors have it."""

    attribute: Literal["encoding", "training"] = "encoding"

    @property
    def traits(self) -> Traits:
        """The encoder may read the group beside the features."""
        check_choice("attribute", self.attribute, ("encoding", "training"))
        return replace(super().traits, needs_attribute=self.attribute == "encoding")


class Players(BaselineNetworks):
    """A learner with an adversary, which reads the group's logits from z; z is the output of one network by default."""

    def __init__(self, method: AdversarialBaseline, rows: TaskRows, seeds: Sequence[int]):
        super().__init__(method, rows, seeds)
        widths = method.n_latent, method.adversary, rows.n_groups
        self.adversary = self.network(*widths, seeds=seeds, stream="adversary")

    def represent(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return z = f(x)."""
        return self.encoder(x)

    def adversary_loss(self, z: Tensor, batch: BaselineBatch) -> Tensor:
        """Return the adversary's loss, (M,): the cross-entropy of the group, unless a method says otherwise."""
        return mean_cross_entropy(self.adversary(z), batch.a)

    def sides(self) -> dict[Side, tuple[Loss, list[nn.Parameter]]]:
        """Return the sides' losses. The adversary cannot change z; its weights are fixed in the other side's steps."""

        def encoder_loss(batch: BaselineBatch, strength: Tensor) -> Tensor:
            self.adversary.requires_grad_(False)
            try:
                return self.loss(batch, strength)
            finally:
                self.adversary.requires_grad_(True)

        def adversary_loss(batch: BaselineBatch, strength: Tensor) -> Tensor:
            with torch.no_grad():
                z = self.represent(batch.x, batch.noise)
            return self.adversary_loss(z, batch)

        own = list(self.adversary.parameters())
        others = [p for p in self.parameters() if not any(p is q for q in own)]
        return {"adversary": (adversary_loss, own), "encoder": (encoder_loss, others)}


class TradeOff(Players):
    """A weighted sum of the task's and the adversary's cross-entropies."""

    def loss(self, batch: BaselineBatch, strength: Tensor) -> Tensor:
        """Return (1 − γ)·L_task − γ·L_adv."""
        z = self.represent(batch.x, batch.noise)
        task = mean_cross_entropy(self.predictor(z), batch.y)
        return (1 - strength) * task - strength * self.adversary_loss(z, batch)


@dataclass(eq=False, repr=False)
class AdversarialEncoder(AdversarialBaseline):
    r"""Plain adversarial training (Edwards and Storkey, 2016), as in the motivation of Balunović et al. (2022).

    Encoder and classifier minimise, and the adversary maximises,

    .. math:: (1 - γ)\, L_{task} - γ\, L_{adv},

    with both losses cross-entropies. The factor 1 − γ is that of the authors' code; equation 2 of the paper has 1.

    Parameters
    ----------
    gamma : float
        γ in [0, 1]: 0 cares for the task alone, 1 for hiding the group alone.
    n_latent : int
        Dimensions of z.
    hidden, head, adversary : sequence of int
        Hidden layers of encoder, classifier and adversary.
    n_epochs, batch_size, learning_rate, weight_decay, sensitive, identifier, device, random_state
        Epochs, rows per step, Adam's settings, names of two columns, where to train ("auto": a GPU), and the seed.

    Examples
    --------
    >>> from fairflows.paper import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> encoder = AdversarialEncoder(n_epochs=2).fit(table.X, table.y, sensitive_features=table.a)
    >>> encoder.transform(table.X).shape
    (400, 2)
    """

    gamma: float = 0.5
    _: KW_ONLY
    n_latent: int = 2
    n_epochs: int = 50
    learning_rate: float = 1e-3
    weight_decay: float = 0.0

    _learner = TradeOff
    _turns: ClassVar[Turns] = (("adversary", "encoder"),)
    _most: ClassVar[float] = 1
    _whitens: ClassVar[bool] = True
    _balanced: ClassVar[bool] = True


class LeakyMLP(StackedMLP):
    """Networks with leaky ReLU units."""

    slope: ClassVar[float] = 0.2

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs (M, B, n_outputs) for inputs (M, B, n_inputs); the unit that is always one stays one."""
        *hidden, last = self.matrices()
        h = augment(x.expand(self.n_models, -1, -1))
        for weight in hidden:
            h = leaky_relu(torch.bmm(h, weight), self.slope)
        return torch.bmm(h, last)


class NormalisedL1(Players):
    """LAFTR's losses: mean absolute errors, the adversary's divided by the share of the row's group."""

    network = LeakyMLP
    weights: Tensor  # one over the share of each group, (K,)

    def __init__(self, method: LAFTR, rows: TaskRows, seeds: Sequence[int]):
        super().__init__(method, rows, seeds)
        counts = torch.bincount(rows.a, minlength=rows.n_groups)
        self.register_buffer("weights", len(rows.a) / counts.clamp(min=1))

    def loss(self, batch: BaselineBatch, strength: Tensor) -> Tensor:
        """Return l_class − γ·L_adv."""
        z = self.represent(batch.x, batch.noise)
        return absolute_error(self.predictor(z), batch.y).mean(-1) - strength * self.adversary_loss(z, batch)

    def adversary_loss(self, z: Tensor, batch: BaselineBatch) -> Tensor:
        """Return l_adv."""
        return (self.weights[batch.a] * absolute_error(self.adversary(z), batch.a)).mean(-1)


@dataclass(eq=False, repr=False)
class LAFTR(AttributeBaseline):
    r"""LAFTR without reconstruction, in its authors' setting (Madras et al., ICML 2018).

    The adversary g minimises its L1 error, normalised by the frequency of its group, and the encoder's side minimises
    the predictor's L1 error less γ times the adversary's:

    .. math:: L_{adv} = \overline{\frac{1 - g_a(z)}{\hat P(a)}}, \qquad
              \min\; \overline{1 - h_y(z)} - γ\, L_{adv}.

    For the best adversary of two groups, 1 − L_adv is the demographic parity distance.

    As in the authors' code the encoder sees the attribute by default, so encoding needs it; features are whitened and
    hidden units leaky.

    Parameters
    ----------
    gamma : float
        γ, the weight of the adversary's loss.
    attribute : {"encoding", "training"}
        Whether the encoder sees the sensitive attribute, or only training does; encoding then does without it.
    n_latent, hidden, head, adversary
        Dimensions of z, and hidden layers of encoder, classifier and adversary.
    n_epochs, batch_size, learning_rate, weight_decay, sensitive, identifier, device, random_state
        Epochs, rows per step, Adam's settings, names of two columns, where to train ("auto": a GPU), and the seed.

    Examples
    --------
    >>> from fairflows.paper import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> encoder = LAFTR(n_epochs=2).fit(table.X, table.y, sensitive_features=table.a)
    >>> encoder.transform(table.X, sensitive_features=table.a).shape
    (400, 8)
    """

    gamma: float = 2.0
    _: KW_ONLY
    hidden: Sequence[int] = (8,)
    head: Sequence[int] = (8,)
    adversary: Sequence[int] = (8,)
    n_epochs: int = 1000
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0

    _learner = NormalisedL1
    _turns: ClassVar[Turns] = (("encoder", "adversary"),)
    _whitens: ClassVar[bool] = True


def absolute_error(logits: Tensor, target: Tensor) -> Tensor:
    """Return 1 − p(target), (M, B): for two classes |target − p(1)|."""
    return 1 - logits.softmax(-1).gather(-1, target[..., None])[..., 0]


class MaximumEntropy(Players):
    """The losses of MaxEnt-ARL; the discriminator minimises its cross-entropy."""

    def loss(self, batch: BaselineBatch, strength: Tensor) -> Tensor:
        """Return l_task − α·mean of log p_a(z) over groups and rows."""
        z = self.represent(batch.x, batch.noise)
        doubt = -self.adversary(z).log_softmax(-1).mean(dim=(-1, -2))
        return mean_cross_entropy(self.predictor(z), batch.y) + strength * doubt


@dataclass(eq=False, repr=False)
class MaxEntARL(AttributeBaseline):
    r"""Maximum-entropy adversarial representation learning (Roy and Boddeti, CVPR 2019).

    In the setting of Gupta et al. (AAAI 2021), which the comparison of Balunović et al. (2022) follows. The
    discriminator minimises its cross-entropy. Encoder and predictor minimise

    .. math:: L_{task} - α\, \overline{\textstyle\frac1K \sum_a \log p_a(z)},

    the cross-entropy of the uniform law under the discriminator's: it is to be unsure, not wrong. Both sides take turns
    batch by batch. The encoder sees the attribute by default, so encoding needs it.

    Parameters
    ----------
    alpha : float
        α, the weight of the discriminator's doubt.
    attribute : {"encoding", "training"}
        Whether the encoder sees the sensitive attribute, or only training does.
    n_latent, hidden, head, adversary
        Dimensions of z, and hidden layers of encoder, predictor and discriminator.
    n_epochs, batch_size, learning_rate, weight_decay, sensitive, identifier, device, random_state
        Epochs, rows per step, Adam's settings, names of two columns, where to train ("auto": a GPU), and the seed.

    Examples
    --------
    >>> from fairflows.paper import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> encoder = MaxEntARL(n_epochs=2).fit(table.X, table.y, sensitive_features=table.a)
    >>> encoder.transform(table.X, sensitive_features=table.a).shape
    (400, 8)
    """

    alpha: float = 10.0
    _: KW_ONLY

    _strength: ClassVar[str] = "alpha"
    _learner = MaximumEntropy
    _turns: ClassVar[Turns] = (("encoder",), ("adversary",))


class Forgetting(Players):
    """The losses of Adversarial Forgetting; the discriminator minimises its cross-entropy."""

    def __init__(self, method: AdversarialForgetting, rows: TaskRows, seeds: Sequence[int]):
        super().__init__(method, rows, seeds)
        check_weights("rho", [method.rho])
        check_weights("lam", [method.lam])
        self.rho, self.lam = method.rho, method.lam
        n_features, d = rows.x.shape[1], method.n_latent
        self.mask = StackedMLP(n_features, method.hidden, d, seeds=seeds, stream="mask")
        self.decoder = StackedMLP(d, method.hidden, n_features, seeds=seeds, stream="decoder")

    def represent(self, x: Tensor, noise: Tensor) -> Tensor:
        """Return z = c ⊙ m."""
        return self.encoder(x) * self.mask(x).sigmoid()

    def loss(self, batch: BaselineBatch, strength: Tensor) -> Tensor:
        """Return l_task + ρ‖x − x̂(c)‖² + λ·mᵀ(1 − m) + δ·L_disc on the groups of other rows."""
        c, m = self.encoder(batch.x), self.mask(batch.x).sigmoid()
        task = mean_cross_entropy(self.predictor(c * m), batch.y)
        distortion = (self.decoder(c) - batch.x).square().sum(-1).mean(-1)
        undecided = (m * (1 - m)).sum(-1).mean(-1)
        other = batch.a.roll(1, dims=-1)  # rows are drawn independently, so this is as good as any permutation
        confused = mean_cross_entropy(self.adversary(c.detach() * m), other)
        return task + self.rho * distortion + self.lam * undecided + strength * confused


@dataclass(eq=False, repr=False)
class AdversarialForgetting(AdversarialBaseline):
    r"""A code of the row, and a mask that forgets parts of it (Jaiswal et al., AAAI 2020).

    In the setting of Gupta et al. (AAAI 2021), which the comparison of Balunović et al. (2022) follows. The code c and
    a mask m ∈ (0, 1)^d are both made from x; z = c ⊙ m is released, predicted from, and attacked by the discriminator.
    A decoder keeps c informative, and the mask is driven towards zeros and ones:

    .. math:: \min\; L_{task} + ρ\,\|x - \hat x(c)\|^2 + λ\, \overline{m^T (1 - m)} + δ\, L_{disc}(c ⊙ m, a')

    Here a' are the groups of other rows, so that the discriminator is to be right about chance alone, and this term
    changes the mask and not the code. The discriminator takes ten steps, each on another batch, for one of the others.

    Parameters
    ----------
    delta : float
        δ, the weight of the discriminator's loss.
    rho, lam : float
        ρ and λ, the weights of reconstruction and of the mask.
    n_latent : int
        Dimensions of z.
    hidden, head, adversary : sequence of int
        Hidden layers of encoder, mask and decoder; of the predictor; of the discriminator.
    n_epochs, batch_size, learning_rate, weight_decay, sensitive, identifier, device, random_state
        Epochs, rows per step, Adam's settings, names of two columns, where to train ("auto": a GPU), and the seed.

    Examples
    --------
    >>> from fairflows.paper import make_gaussians
    >>> table, _ = make_gaussians(400, random_state=0)
    >>> AdversarialForgetting(n_epochs=2).fit(table.X, table.y, sensitive_features=table.a).transform(table.X).shape
    (400, 8)
    """

    delta: float = 1.0
    _: KW_ONLY
    rho: float = 0.001
    lam: float = 0.1

    _strength: ClassVar[str] = "delta"
    _learner = Forgetting
    _turns: ClassVar[Turns] = (("encoder",),) + 10 * (("adversary",),)

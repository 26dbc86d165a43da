"""Every defence with the attack that it stops: the attack wins without the defence, and finds nothing with it.

The encoders here turn each group's model space by a rotation of its own, so that both groups have the same round law
of z and nothing shows in z itself: what an adversary finds, she finds by turning z back as if it were of either group.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from known_encoders import FixedCells, column

from fairflows import Table, audit, certify
from fairflows.codec.model_space import Codec
from fairflows.encoder.base import EncodedColumns, Inversion, LatentLaw
from fairflows.paper.baselines import RawFeatures
from fairflows.table.keys import new_key

N = 4000
NAMES = ["u", "v", "w"]


class RotatedGroups(RawFeatures):
    """z = R_a (x - m) / s, with the mean m and the standard deviation s of the rows it was fitted on."""

    def __init__(self, codec, *, sensitive=None, identifier=None, key=None, random_state=0):
        super().__init__(sensitive=sensitive, identifier=identifier, key=key, random_state=random_state)
        self.codec = codec

    def learn(self, rows):
        self.codec_ = self.codec.fit(rows.X)
        x, _ = self.codec_.encode(rows.X, rows.persons)
        self.mean_, self.scale_ = x.mean(axis=0), x.std(axis=0)
        rng = np.random.default_rng(5)
        self.rotations_ = [np.linalg.qr(rng.normal(size=(x.shape[1],) * 2))[0] for _ in self.groups_]
        self.output_ = EncodedColumns.of_numbers(f"z{j}" for j in range(x.shape[1]))

    def encode(self, rows):
        x = (self.codec_.encode(rows.X, rows.persons)[0] - self.mean_) / self.scale_
        turned = np.stack([x @ rotation.T for rotation in self.rotations_])
        return pd.DataFrame(turned[rows.group, np.arange(len(x))], columns=list(self.output_.dtypes))

    def latent_law(self):
        return Rotations(self)


@dataclass
class Rotations(LatentLaw):
    """The inverses of the rotations."""

    encoder: RotatedGroups

    def inversions(self, Z) -> list[Inversion]:
        found, codec = [], self.encoder.codec_
        for rotation in self.encoder.rotations_:
            standard = np.asarray(Z, dtype=np.float64) @ rotation  # the inverse of a rotation is its transpose
            x = self.encoder.mean_ + self.encoder.scale_ * standard
            rows, log_prob = codec.decode(x), -(standard**2).sum(axis=1) / 2
            found.append(Inversion(codec.names_, rows, codec.values(x), x, log_prob, np.zeros(len(x))))
        return found


@dataclass
class Scene:
    """Rows of two groups with one law, and the encoder of somebody who released them."""

    X: pd.DataFrame
    a: np.ndarray
    encoder: RotatedGroups

    @classmethod
    def of(cls, X: pd.DataFrame, codec: Codec | None = None) -> "Scene":
        X = X.set_axis(pd.Index([f"p{i}" for i in range(len(X))], name="person"))
        a = np.arange(len(X)) % 2
        return cls(X, a, RotatedGroups(codec or Codec(), identifier="person").fit(X, sensitive_features=a))

    def released(self) -> pd.DataFrame:
        return self.encoder.transform(self.X, sensitive_features=self.a)

    def recovered(self, suspicion) -> float:
        """Share of right guesses when the group whose inversion looks less suspicious is named; ties are coin flips."""
        inversions = self.encoder.latent_law().inversions(self.released())
        s = np.column_stack([np.asarray(suspicion(inversion), dtype=float) for inversion in inversions])
        own, other = s[np.arange(len(s)), self.a], s[np.arange(len(s)), 1 - self.a]
        return float(((own < other) + 0.5 * (own == other)).mean())

    def audited(self, **settings):
        table = Table(self.X.assign(a=self.a).reset_index(), sensitive="a", identifier="person")
        train, test = table.split(test=0.4, validation=0)
        return audit(self.encoder, train, test, quick=True, **settings)


def bell(n: int = N, columns=NAMES, seed: int = 0) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(seed).normal(50, 8, size=(n, len(columns))), columns=columns)


def no_better_than_chance(share: float, n: int = N) -> bool:
    return abs(share - 0.5) < 4 * 0.5 / np.sqrt(n)


def off_the_grid(inversion: Inversion) -> np.ndarray:
    distance = np.abs(inversion.values - np.rint(inversion.values))
    return (distance > 1e-6).sum(axis=1)


def test_values_on_a_grid():
    """Only the true inverse lands on whole numbers again; noise between them hides that."""
    X = bell().round().astype(int)
    bare, noisy = Scene.of(X, Codec(dequantise=False)), Scene.of(X)
    assert bare.recovered(off_the_grid) == 1.0
    assert no_better_than_chance(noisy.recovered(off_the_grid))
    found = bare.audited()
    assert found.best == "grid test"
    assert found.attack_lower > 0.98
    assert found.to_frame().query("box == 'closed'")["lower"].max() < 0.1, "z itself does not show it"
    assert noisy.audited().attack_lower < 0.1


def test_a_person_encoded_twice():
    """With fresh noise only the true inverse finds the same values twice; keyed noise encodes her alike."""
    X = bell(columns=list("abcdefghij")).round().astype(int)

    def changes(first: pd.DataFrame, second: pd.DataFrame, encoder: RotatedGroups) -> np.ndarray:
        """How many values differ between two encodings of a row, under each group's inverse."""
        pairs = zip(encoder.latent_law().inversions(first), encoder.latent_law().inversions(second), strict=True)
        return np.column_stack([(one.rows.to_numpy() != two.rows.to_numpy()).sum(axis=1) for one, two in pairs])

    scene = Scene.of(X)
    first = scene.released()
    scene.encoder.codec_.key = new_key()
    told = changes(first, scene.released(), scene.encoder)
    own, other = told[np.arange(N), scene.a], told[np.arange(N), 1 - scene.a]
    assert (own == 0).all()
    assert (other > 0).mean() > 0.95

    shuffled = np.random.default_rng(0).permutation(N)
    again = scene.encoder.transform(scene.X.iloc[shuffled], sensitive_features=scene.a[shuffled]).loc[scene.X.index]
    assert np.allclose(again, scene.released(), rtol=0, atol=1e-12)
    assert (changes(scene.released(), again, scene.encoder) == 0).all(), "under either inverse"


class SharedNoise(Codec):
    """Every column gets the same noise."""

    def _noise(self, persons, name, n):
        return super()._noise(persons, "any", n)


ENDS = ("low", "high")


class CoarseNoise(Codec):
    """Noise of 16 bits."""

    def _noise(self, persons, name, n):
        return np.floor(super()._noise(persons, name, n) * 2**16) / 2**16


class ClampedTails(Codec):
    """Numbers outside the training range are moved to its end."""

    def encode(self, X, persons):
        low, high = (pd.Series({name: getattr(scale, end) for name, scale in self.scales_.items()}) for end in ENDS)
        return super().encode(X.clip(low, high, axis=1), persons)


def fractions(inversion: Inversion) -> np.ndarray:
    return inversion.values - np.floor(inversion.values)


def test_two_columns_with_the_same_noise():
    X = bell().round().astype(int)

    def differ(inversion):
        return np.ptp(fractions(inversion), axis=1) > 1e-6

    assert Scene.of(X, SharedNoise()).recovered(differ) == 1.0
    assert no_better_than_chance(Scene.of(X).recovered(differ))


def test_noise_of_few_bits():
    X = bell().round().astype(int)

    def between_bits(inversion):
        scaled = fractions(inversion) * 2**16
        return (np.abs(scaled - np.rint(scaled)) > 1e-3).sum(axis=1)

    assert Scene.of(X, CoarseNoise()).recovered(between_bits) > 0.99
    assert no_better_than_chance(Scene.of(X).recovered(between_bits))


@pytest.mark.filterwarnings("ignore:Values outside the training range")
def test_clamped_tails():
    """Values moved to the end of the training range are atoms that only the true inverse returns to."""
    X = bell()

    def away_from_an_end(codec):
        ends = np.array([[scale.low, scale.high] for scale in codec.scales_.values()], dtype=float)
        return lambda inversion: -(np.abs(inversion.values[:, :, None] - ends) < 1e-9).any(axis=(1, 2)).astype(float)

    far = bell(seed=1)
    far["u"] += 60  # every row is outside the training range
    for codec, share in ((ClampedTails(), 1.0), (Codec(), None)):
        scene = Scene.of(X, codec)
        scene.X = far.set_axis(scene.X.index)
        recovered = scene.recovered(away_from_an_end(scene.encoder.codec_))
        assert recovered == share if share else no_better_than_chance(recovered)


def test_float32_traces():
    """A map that stretches reaches only some float32 numbers from float32 numbers: whoever is off them is not its own.

    Encoded in float64 and rounded when released, every float32 number can come from either group.
    """
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(N, 12)).astype(np.float32), np.arange(N) % 2
    slope, shift = np.array([1.0, 4.3], dtype=np.float32), np.array([0.1, 0.37], dtype=np.float32)

    def encode(values, group, dtype):
        stretched = values.astype(dtype) * slope[group].astype(dtype)[..., None]
        return (stretched + shift[group].astype(dtype)[..., None]).astype(np.float32)

    def reachable(z, group, dtype):
        """Whether some x of this precision near f⁻¹(z) is sent exactly to z, in all columns."""
        group = np.full(len(z), group)
        guess = ((z.astype(np.float64) - shift[group][:, None]) / slope[group][:, None]).astype(dtype)
        steps = np.spacing(np.abs(guess))
        hits = [encode(guess + k * steps, group, dtype) == z for k in range(-3, 4)]
        return np.any(hits, axis=0).all(axis=1)

    def told_apart(dtype):
        # Both groups' z get the same spread, as a trained pair of flows would have it.
        z = encode(np.where(a[:, None] == 0, 4.3 * x, x), a, dtype)
        stretches = reachable(z, 1, dtype)
        return stretches[a == 1].mean() - stretches[a == 0].mean()

    assert told_apart(np.float32) > 0.9
    assert abs(told_apart(np.float64)) < 0.01


def test_heaped_values():
    """Wages in thousands but for a few: filling the gap of one leaves the heaps; coarsening does not."""
    wages = bell().round() * 1000
    rare = np.random.default_rng(2).random(wages.shape) < 0.01
    heaped = (wages + np.where(rare, 7, 0)).astype(int)

    def off_the_heap(inversion):
        return (np.floor(inversion.values) % 1000 != 0).sum(axis=1)

    assert Scene.of(heaped).recovered(off_the_heap) > 0.95
    coarse = (heaped / 1000).round().astype(int) * 1000
    assert no_better_than_chance(Scene.of(coarse).recovered(off_the_heap))


def test_derived_columns():
    """A column that others determine says which inverse is real, noise or not; without it there is nothing to check."""
    X = bell(columns=["u", "v"]).round().astype(int)
    X["sum"] = X["u"] + X["v"]

    def adds_up(frame):
        return frame["u"] + frame["v"] == frame["sum"]

    scene = Scene.of(X)
    assert scene.recovered(lambda inversion: ~adds_up(inversion.rows)) > 0.95
    assert scene.audited(constraints=[adds_up]).attack_lower > 0.85
    assert Scene.of(X[["u", "v"]]).audited().attack_lower < 0.1


def test_what_is_released_together_is_certified_together():
    """A coin tells nothing, and a coin ⊕ a tells nothing; both together tell a."""
    rng = np.random.default_rng(0)
    a, coin = rng.integers(2, size=N), rng.integers(2, size=N)
    rows = Table({"coin": coin, "a": a, "y": coin ^ a}, sensitive="a", label="y")
    release = FixedCells(column("coin")).fit(Table({"coin": [0, 1], "a": [0, 1]}, sensitive="a"))
    alone, both = certify(release, rows), certify(release, rows, with_labels=True)
    assert alone.cell_upper < 0.08
    assert both.cell_upper == 1.0
    assert alone.cell_odds_upper == {"0": 1.0, "1": 1.0}, "equalized odds does not follow from parity"
    assert abs(rows.y[a == 0].mean() - rows.y[a == 1].mean()) < 0.05, "the label by itself is as silent"

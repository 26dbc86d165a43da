"""The certificate as a document: what is said, about what, under which assumptions; as text, HTML and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from fairflows.bounds.arguments import Estimator, Priors
from fairflows.bounds.derived import (
    balanced_accuracy,
    four_fifths_rate,
    rounded_down,
    rounded_up,
    selection_ratio_lower_bound,
)
from fairflows.certificate.counted import CountedStatement
from fairflows.display import (
    ATTACK,
    GUESS,
    Bound,
    Columns,
    draw_bounds,
    height_of_bounds,
    html_card,
    new_axes,
    stated_bounds,
)
from fairflows.exceptions import DataError
from fairflows.table.json_text import parse_json, read_as, read_text, stated_fields
from fairflows.table.persons import fingerprint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = 1
"""The version of the JSON that is written and read."""

Plain = str | int | float | list["Plain"] | dict[str, "Plain"] | None
"""What JSON holds."""

Status = Literal["CERTIFIED", "REFUTED", "MODEL_ONLY", "NOT_MET"]

MEANING = {
    "CERTIFIED": "holds for the true distribution, whatever it is",
    "REFUTED": "an actual adversary beats the model-based bound, so the estimated densities are wrong",
    "MODEL_ONLY": "holds only if the estimated densities are the truth",
    "NOT_MET": "no bound is low enough to promise what was asked, or anything",
}
_COLOURS = {"CERTIFIED": "#1b7f4b", "REFUTED": "#b3261e", "MODEL_ONLY": "#8a6100", "NOT_MET": "#5f6368"}


class ContradictionError(RuntimeError):
    """A lower bound above the upper bound for the same deterministic release of the same rows: only a bug does that."""


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """What an attack found, as far as a certificate states it.

    Attributes
    ----------
    attack_lower : float
        The lower bound on the true Δ that the best adversary proves.
    best : str
        The adversary that was chosen, on validation persons.
    delta : float
        δ, the probability that the bound is wrong.
    density_gap_lower : dict
        For each group, how far p̂_a is from the truth at least; each at δ. Empty for a model without densities.
    released : tuple of str
        What was attacked.
    model, rows : str
        Keyed hashes: which model, empty for an array; which of the test rows were attacked, at most one of each person.
    limits : tuple of str
        What adversaries could not try, in sentences.
    """

    attack_lower: float
    best: str
    delta: float
    density_gap_lower: dict[str, float]
    released: tuple[str, ...]
    model: str
    rows: str = ""
    limits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Certificate:
    """What a release tells about the group, in statements of three kinds that are never merged.

    Every bound is a statistical distance Δ in [0, 1]: the largest demographic parity distance that any classifier on
    the release can have; the best adversary between two groups has the balanced accuracy (1 + Δ)/2. For more than two
    groups Δ is of the worst pair. What was not computed is None.

    Attributes
    ----------
    status : {"CERTIFIED", "REFUTED", "MODEL_ONLY", "NOT_MET"}
        CERTIFIED: ``cell_upper`` is within the target. Else REFUTED: ``attack_lower`` is above ``model_upper``. Else
        MODEL_ONLY: ``model_upper`` is within the target. Else NOT_MET. Without a target, which kind of bound there is.
    sensitive : str
        The name of the sensitive attribute.
    target, target_accuracy : float or None
        The distance, or the adversary's accuracy, that was asked for.
    priors : tuple of float, or None
        Share of each group where the adversary works; None means equal shares.
    released : tuple of str
        All that goes out together: "cell" or "latent", and "label".
    model_delta, model_upper : float or None
        Δ if the estimated densities are the truth: the estimate, and its upper bound at ``spent["model"]``.
    model_accuracy_upper : float or None
        The same for the accuracy of the best guess of the group, at the priors.
    model_odds_upper : dict
        Δ_y within each label, for models with densities of each label.
    estimator : {"betting", "sign"}
        What the model-based bound was computed by.
    cell_delta, cell_upper : float or None
        Δ of the *true* distribution, for released cells: as observed, and its upper bound at ``spent["cells"]``. It is
        about a random row of what is released.
    person_delta, person_upper : float or None
        The same about a random row of a random person, at ``spent["persons"]``; None where no person has two rows, and
        both are the same.
    cell_accuracy_upper : float or None
        The same for the accuracy of the best guess of the group, at the priors.
    cell_odds_upper : dict
        Δ_y within each label, all labels at once: bounds the equalized-odds gap of every classifier.
    attack_lower : float or None
        What an actual adversary reaches at least, at ``spent["attack"]``.
    attack_by : str
        Which one.
    density_gap_lower : dict
        How far the model's own p̂_a is from the truth at least, for each group.
    density_error_lower : float or None
        Where the model is refuted: TV(p̂_a, p_a) summed over the two worst groups, at least.
    vouched_upper : float or None
        Δ of the true distribution if the densities err by no more than ``density_error``, as somebody vouched.
    density_error : tuple of float, or None
        TV(p̂_a, p_a) at most, for each group.
    density : str
        The densities that the model-based bound is about.
    n_cells : int or None
        Cells that are released.
    n : dict
        Independent rows of each group that were counted, at most one of each person.
    n_persons : dict
        Persons of each group that were counted for ``person_upper``.
    most_rows : int
        The most rows that a person may have.
    delta : float
        δ, the probability of error that was asked for.
    spent : dict
        The probability of error of each kind of statement, by name; all of them hold together but for the sum.
    look : int
        The number of this certificate among those made from the same rows.
    counts : tuple of CountedStatement
        The counts that the bounds on the true distribution are computed from: ``cell_upper`` and
        ``cell_accuracy_upper`` from those of a random row, ``cell_odds_upper`` from those given a label,
        ``person_upper`` from those of a random person.
    released_files : dict
        The SHA-256 of each file that was released with the certificate, by the file's name.
    counted_file : str
        The one of these files whose rows are the cells of exactly the persons that were counted, so that its own
        histogram is the sum of their counts over the groups; empty where none is.
    assumptions : tuple of str
        What all of it rests on.
    model, rows : str
        Keyed hashes: which model, which rows.
    seed, n_draws : int
        Of the Monte-Carlo estimate.
    versions : dict
        Of the software.
    seal : str
        A keyed hash of all of the above; empty for a model without a key.
    unchecked : bool
        Whether it was read from JSON: then it is what somebody states, until `check` says that its bounds follow from
        its counts, or `verify` that all of it holds. No part of the certificate itself.
    """

    status: Status
    sensitive: str
    released: tuple[str, ...]
    n: dict[str, int]
    delta: float
    spent: dict[str, float]
    assumptions: tuple[str, ...]
    model: str
    rows: str
    seed: int
    n_draws: int
    versions: dict[str, str]
    target: float | None = None
    target_accuracy: float | None = None
    priors: Priors = None
    model_delta: float | None = None
    model_upper: float | None = None
    model_accuracy_upper: float | None = None
    model_odds_upper: dict[str, float] = field(default_factory=dict)
    cell_delta: float | None = None
    cell_upper: float | None = None
    cell_accuracy_upper: float | None = None
    cell_odds_upper: dict[str, float] = field(default_factory=dict)
    attack_lower: float | None = None
    attack_by: str = ""
    density_gap_lower: dict[str, float] = field(default_factory=dict)
    density_error_lower: float | None = None
    vouched_upper: float | None = None
    density_error: tuple[float, ...] | None = None
    density: str = ""
    estimator: Estimator = "betting"
    n_cells: int | None = None
    person_delta: float | None = None
    person_upper: float | None = None
    n_persons: dict[str, int] = field(default_factory=dict)
    most_rows: int = 1
    look: int = 1
    counts: tuple[CountedStatement, ...] = ()
    released_files: dict[str, str] = field(default_factory=dict)
    counted_file: str = ""
    seal: str = ""
    unchecked: bool = field(default=False, compare=False)

    def to_dict(self) -> dict[str, Plain]:
        """Plain values, as JSON holds them."""
        return json.loads(json.dumps({name: getattr(self, name) for name in stated_fields(Certificate)}, default=vars))

    def to_json(self, indent: int | None = 2) -> str:
        """The certificate as JSON, which `from_json` reads back without loss."""
        return json.dumps({"format": FORMAT, **self.to_dict()}, indent=indent, ensure_ascii=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """A certificate from its file, unchecked; a DataError says why it is none."""
        text = read_text(path)
        try:
            return cls.from_json(text)
        except ValueError as error:
            raise DataError(f"{path}: not a certificate: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A certificate from its JSON, unchecked.

        Raises
        ------
        ValueError
            The text is no certificate.
        """
        values = parse_json(text)
        written = values.pop("format", None) if isinstance(values, dict) else None
        if written != FORMAT:
            raise ValueError(
                f"this is no certificate that this version can read: 'format' must be {FORMAT}; got {written!r:.40}. "
                "One of another version must be made again."
            )
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """A certificate from the plain values of `to_dict`, unchecked; a ValueError says what none can state."""
        found: Self = read_as(values, cls)
        for name, value in vars(found).items():
            if is_distance(name) and not _is_within_0_and_1(value):
                raise ValueError(f"a certificate cannot state {name} = {value!r:.40}.")
        for name, shares in (("priors", found.priors), ("density_error", found.density_error)):
            if shares is not None and len(shares) != len(found.n):
                raise ValueError(f"a certificate of {len(found.n)} groups cannot state {name} = {shares}.")
        return replace(found, unchecked=True)

    def sealed(self, key: bytes) -> Self:
        """The same certificate with a seal that only the holder of the key can make."""
        return replace(self, seal=self._digest(key))

    @property
    def mark(self) -> str:
        """What the certificate is known by in the book of looks: a hash of all but the seal and the released files.

        Files are written after the certificate was made, and named in it then.
        """
        return replace(self, released_files={}, counted_file="")._digest(b"")

    def _digest(self, key: bytes) -> str:
        return fingerprint([json.dumps({**self.to_dict(), "seal": ""}, sort_keys=True)], key)

    def with_file(self, name: str, sha256: str, *, counted: bool = False) -> Self:
        """The same certificate, without a seal, naming a file that was released under it.

        Parameters
        ----------
        name : str
            The file's name, without folders.
        sha256 : str
            The SHA-256 of its contents.
        counted : bool
            Whether its rows are the cells of exactly those persons that were counted.
        """
        return replace(
            self,
            released_files={**self.released_files, name: sha256},
            counted_file=name if counted else self.counted_file,
            seal="",
        )

    def derived(self, largest_rate: float | None = None) -> dict[str, dict[str, float]]:
        """What the upper bounds say about every classifier on the release.

        Parameters
        ----------
        largest_rate : float, optional
            The selection rate of the group that a classifier selects most; a lower confidence bound where it is
            estimated.

        Returns
        -------
        dict
            For the "true distribution" and the "model", where there is a bound: the demographic "parity" distance, at
            most; "equalized odds", the largest gap given a label, at most; "adversary accuracy", at most; "four-fifths
            from", the largest rate from which on the four-fifths rule is kept (above 1: it may be broken at any); and
            with ``largest_rate`` the "selection ratio" of the least over the most selected group, at least.
        """
        kinds = {
            "true distribution": (self.cell_upper, self.cell_accuracy_upper, self.cell_odds_upper),
            "model": (self.model_upper, self.model_accuracy_upper, self.model_odds_upper),
        }
        found: dict[str, dict[str, float]] = {}
        for kind, (upper, accuracy, odds) in kinds.items():
            if upper is None or accuracy is None:
                continue
            found[kind] = {
                "parity": upper,
                **({"equalized odds": max(odds.values())} if odds else {}),
                "adversary accuracy": accuracy,
                "four-fifths from": float(four_fifths_rate(upper)),
            }
            if largest_rate is not None:
                found[kind]["selection ratio"] = float(selection_ratio_lower_bound(upper, largest_rate))
        return found

    @property
    def is_good(self) -> bool:
        """Whether what was asked for is what was reached: certified cells, or a latent that its model vouches for."""
        return self.status == "CERTIFIED" or ("latent" in self.released and self.status == "MODEL_ONLY")

    @property
    def headline(self) -> CountedStatement | None:
        """The counts of a random row, all labels together; None where nothing was counted."""
        return next((each for each in self.counts if each.law == "row" and each.label is None), None)

    def bounds(self) -> list[Bound]:
        """The bounds on Δ as they are drawn: by the attack, by the model, and certified; those that there are."""
        return stated_bounds(self.attack_lower, self.model_upper, self.cell_upper)

    def plot(self, before: float | None = None, ax: Axes | None = None) -> Axes:
        """Draw the bounds on one scale: what an attack reached, what the model says, what is certified, the target.

        Parameters
        ----------
        before : float, optional
            The Δ that adversaries reach at least on the raw rows, such as the ``attack_lower`` of their `audit`, to be
            drawn above the others.
        ax : Axes, optional
            What to draw on; a new figure when not given.
        """
        if before is not None and not 0 <= before <= 1:
            raise DataError(f"before must be a distance in [0, 1]; got {before!r}.")
        raw = [] if before is None else [Bound("raw rows: attack reached at least", before, "at least", ATTACK)]
        bounds = [*raw, *self.bounds()]
        axes = ax if ax is not None else new_axes(6.5, height_of_bounds(len(bounds)))
        draw_bounds(axes, bounds, target=self.target_distance, percent=GUESS if self.is_plain else "")
        return axes

    @property
    def is_plain(self) -> bool:
        """Whether there are two groups, equally likely: then the best guess is right (1 + Δ)/2 of the time."""
        return len(self.n) == 2 and self.priors is None

    @property
    def target_distance(self) -> float | None:
        """The target as a distance Δ; None where there is none, or it is about more than two groups at once."""
        if self.target is not None or self.target_accuracy is None or not self.is_plain:
            return self.target
        return 2 * self.target_accuracy - 1

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self._lines())
        lines = [f"{self._unchecked}{self.status}: {MEANING[self.status]}"]
        lines += [f"  {name:<{width}}  {text}" for name, text in self._lines()]
        lines += ["  assuming that", *(f"    - {sentence}" for sentence in self.assumptions)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = Columns(self._lines())
        return html_card(MEANING[self.status], facts, "Assuming that", self.assumptions, badge=self.badge)

    @property
    def badge(self) -> tuple[str, str]:
        """The status as a word and the colour that it is shown in."""
        if self.unchecked:
            return f"{self._unchecked}{self.status}", _COLOURS["NOT_MET"]
        return self.status, _COLOURS[self.status]

    @property
    def _unchecked(self) -> str:
        return "NOT CHECKED (`fairflows check` does that). Somebody states: " if self.unchecked else ""

    def _lines(self) -> list[tuple[str, str]]:
        """What the certificate says, a line each: name and text."""
        cells = f" ({self.n_cells} cells)" if self.n_cells is not None else ""
        lines = [("sensitive", self.sensitive), ("released", " and ".join(self.released) + cells)]
        if self.target is not None:
            lines.append(("target", f"Δ ≤ {self.target:.4g} ({self._between_two} {_accuracy(self.target)})"))
        elif self.target_accuracy is not None:
            lines.append(("target", f"an adversary is right at most {100 * self.target_accuracy:.4g} % of the time"))
        if self.priors is not None:
            shares = ", ".join(f"{group}: {_percent(share)}" for group, share in zip(self.n, self.priors, strict=True))
            lines.append(("group shares", shares))
        lines.append(("true distribution", self._certified()))
        if self.person_upper is not None:
            counted = ", ".join(f"{group}: {count:,}" for group, count in self.n_persons.items())
            text = f"Δ ≤ {rounded_up(self.person_upper)} (observed {self.person_delta:.4f}; {counted})"
            lines.append(("  a random person", text))
        if self.cell_odds_upper:
            lines.append(("  given the label", _by_name("Δ ≤", self.cell_odds_upper)))
        lines.append(("model", self._modelled()))
        if self.model_upper is not None and self.density:
            lines.append(("  density", self.density))
        if self.model_odds_upper:
            lines.append(("  given the label", _by_name("Δ ≤", self.model_odds_upper)))
        if self.vouched_upper is not None:
            errors = ", ".join(f"{error:g}" for error in self.density_error or ())
            lines.append(
                ("  vouched for", f"Δ ≤ {rounded_up(self.vouched_upper)} if the densities err by at most {errors}")
            )
        lines.append(("attack", self._attacked()))
        if self.density_gap_lower:
            lines.append(("densities", _by_name("TV(p̂, p) ≥", self.density_gap_lower)))
        counted = ", ".join(f"{group}: {count:,}" for group, count in self.n.items())
        unit = "rows of different persons" if self.most_rows > 1 else "persons"
        lines.append(("counted", f"{unit}, {counted}; certificate {self.look} from these persons"))
        spent = ", ".join(f"{name} {share:.4g}" for name, share in self.spent.items())
        lines.append(("probability of error", f"δ = {self.delta:g}; spent: {spent}"))
        lines.append(("about", f"model {self.model}, rows {self.rows}, seed {self.seed}"))
        return lines

    def _certified(self) -> str:
        if self.cell_upper is None or self.cell_accuracy_upper is None:
            return "nothing is certified: that takes a release of cells"
        return f"{self._bounds(self.cell_upper, self.cell_accuracy_upper)} (observed {self.cell_delta:.4f})"

    def _modelled(self) -> str:
        if self.model_upper is None or self.model_accuracy_upper is None:
            return "no statement: there is no density of what is released"
        estimate = f"estimate {self.model_delta:.4f}" if self.spent.get("model") else "exact"
        return f"{self._bounds(self.model_upper, self.model_accuracy_upper)} ({estimate}), if p̂ is the truth"

    def _bounds(self, upper: float, accuracy: float) -> str:
        """The bound on Δ and the one on the adversary's accuracy, which for two equal groups is (1 + Δ)/2."""
        if self.is_plain:
            return f"Δ ≤ {rounded_up(upper)}, adversary {rounded_up(100 * accuracy, 1)} %"
        blind = _percent(1 / len(self.n) if self.priors is None else max(self.priors))
        return (
            f"Δ ≤ {rounded_up(upper)} ({self._between_two} {_accuracy(upper)}), adversary "
            f"{rounded_up(100 * accuracy, 1)} % (blind {blind})"
        )

    @property
    def _between_two(self) -> str:
        """What (1 + Δ)/2 is the accuracy of."""
        if len(self.n) > 2:
            return "worst pair"
        return "adversary" if self.priors is None else "equal shares"

    def _attacked(self) -> str:
        if self.attack_lower is None:
            return "not attacked"
        text = f"Δ ≥ {rounded_down(self.attack_lower)} by {self.attack_by}"
        if self.density_error_lower:
            text += f": the densities err by at least {rounded_down(self.density_error_lower)} together"
        return text


def is_distance(name: str) -> bool:
    """Whether a field holds bounds or estimates of distances or accuracies, which are between 0 and 1."""
    return name in ("target", "target_accuracy") or name.endswith(("_upper", "_lower", "_delta"))


def _is_within_0_and_1(value: object) -> bool:
    numbers = value.values() if isinstance(value, dict) else [value]
    return all(number is None or (isinstance(number, int | float) and 0 <= number <= 1) for number in numbers)


def _accuracy(distance: float) -> str:
    return f"{rounded_up(100 * float(balanced_accuracy(distance)), 1)} %"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _by_name(relation: str, values: dict[str, float]) -> str:
    shown = rounded_up if relation.endswith("≤") else rounded_down
    return ", ".join(f"{name}: {relation} {shown(value)}" for name, value in values.items())

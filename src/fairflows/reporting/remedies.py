"""What would help where a target is not met: two commands, and what to expect from each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairflows.bounds.planning import planned_cell_bound, rows_needed
from fairflows.reporting.words import CertificateFields, at_most, target_distance

FloatArray = npt.NDArray[np.float64]

_FEWER = (32, 16, 8, 4, 2)


@dataclass(frozen=True)
class Remedy:
    """A command to try, and what it would bring.

    Attributes
    ----------
    command : str
        What to type; the dots stand for the options that were given before.
    expect : str
        What to expect, in one or two sentences.
    """

    command: str
    expect: str


def remedies(certificate: CertificateFields) -> list[Remedy]:
    """Two ways to come within a target that was missed; none where it was met, or there was none.

    Both expectations are plans for groups that are alike in the cells, or as far apart as they were seen; neither is a
    promise.
    """
    c = certificate
    target = target_distance(c)
    if c["status"] == "CERTIFIED" or (target is None and c["target_accuracy"] is None):
        return []
    n = np.array(list(c["n"].values()), dtype=np.float64)
    delta = c["spent"].get("cells", c["delta"])
    if c["cell_upper"] is None:
        said = f"Cells can be certified: {_said(8, _planned(n, 8, delta), target)}"
        return [
            Remedy("fairflows fit … --release cells --n-cells 8 --replace", said),
            _more_persons(c, n, delta, target),
        ]
    return [_fewer_cells(c, n, delta, target), _more_persons(c, n, delta, target)]


def _fewer_cells(c: CertificateFields, n: FloatArray, delta: float, target: float | None) -> Remedy:
    n_labels = max(1, len(c["cell_odds_upper"])) if "label" in c["released"] else 1
    now = max(3, (c["n_cells"] or 64) // n_labels)
    bounds = {k: _planned(n, k * n_labels, delta) for k in _FEWER if k < now}
    wide_enough = [k for k, bound in bounds.items() if target is None or bound <= target]
    k = wide_enough[0] if wide_enough else min(bounds)
    command = f"fairflows fit … --n-cells {k} --replace"
    return Remedy(command, f"Fewer cells tell less, and are counted more surely: {_said(k, bounds[k], target)}")


def _more_persons(c: CertificateFields, n: FloatArray, delta: float, target: float | None) -> Remedy:
    command = "fairflows fit MORE-PERSONS.csv … --replace"
    if target is None:
        return Remedy(command, "Four times as many persons halve what the bound adds to the distance that is seen.")
    shares = n / n.sum()
    needed = _needed(_seen(c), shares, delta, target)
    said = "With these cells the bound comes down to the target"
    if needed is None:
        needed = rows_needed(target, delta, probabilities=np.full((len(n), 8), 1 / 8), shares=shares)
        said = "With 8 cells that are alike in all groups the bound comes down to the target"
        if c["cell_upper"] is not None:
            said = f"These cells are too far apart for any number of persons. {said}"
    times = float((needed / n).max())
    if times <= 1:
        return Remedy(command, f"{said} with as many persons as now, on average; chance decided against it this time.")
    return Remedy(
        command,
        f"{said} with about {times:.1f} times as many persons: {int(needed.sum()):,} to certify on instead of "
        f"{int(n.sum()):,}.",
    )


def _needed(seen: FloatArray | None, shares: FloatArray, delta: float, target: float) -> npt.NDArray[np.int64] | None:
    """Persons of each group that it takes with cells as they were seen; None where no number of them suffices."""
    if seen is None or float(planned_cell_bound(seen, shares * 1e15, delta)) > target:
        return None
    return rows_needed(target, delta, probabilities=seen, shares=shares)


def _seen(c: CertificateFields) -> FloatArray | None:
    """The shares of the cells in each group, as the certificate prints them; of several models, all cells together."""
    statement = next((each for each in c["counts"] if each["law"] == "row" and each["label"] is None), None)
    if statement is None:
        return None
    rows = [
        np.concatenate([[*fold["counts"][group], fold["merged"][group]] for fold in statement["folds"]])
        for group in c["n"]
    ]
    counts = np.array(rows, dtype=np.float64)
    return counts / counts.sum(axis=1, keepdims=True)


def _planned(n: FloatArray, n_cells: int, delta: float) -> float:
    return float(planned_cell_bound(np.full((len(n), n_cells), 1 / n_cells), n, delta))


def _said(n_cells: int, bound: float, target: float | None) -> str:
    reached = f"with {n_cells} cells that are alike in all groups, so many persons give about Δ ≤ {at_most(bound)}"
    if target is None:
        return f"{reached}."
    return f"{reached}, {'within' if bound <= target else 'still above'} the target of {target:.4g}."

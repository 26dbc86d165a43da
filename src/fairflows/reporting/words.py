"""The certificate in plain words, for a reader who knows no statistics."""

from __future__ import annotations

from typing import Any

TITLES = {
    "CERTIFIED": "Certified",
    "MODEL_ONLY": "Holds for the model only",
    "REFUTED": "Refuted",
    "NOT_MET": "Target not met",
}


def percent(share: float, digits: int = 1) -> str:
    """A share as a percentage; bounds are not rounded to 100 % or 0 %."""
    return f"{100 * share:.{digits}f} %"


def distance(value: float | None) -> str:
    """A distance Δ with three digits; one too small for them says so."""
    if value is None:
        return "–"
    return f"{value:.3f}" if value >= 0.0005 or value == 0 else "< 0.001"


def verdict(certificate: dict[str, Any]) -> list[str]:
    """What the status means for whoever has to decide, in a few sentences."""
    c = certificate
    chance = max(c.get("priors") or [1 / max(2, len(c["n"]))])
    shares = "at the given shares of the groups" if c.get("priors") else "when the groups are equally likely"
    what = "cell" if "cell" in c["released"] else "encoded row"
    if "label" in c["released"]:
        what += " and the label"
    asked = _target(c)
    if c["status"] == "CERTIFIED":
        spent = c["spent"]["cells"]
        return [
            f"Whoever sees a released {what} of a new person guesses the person's group right at most "
            f"{percent(c['cell_accuracy_upper'])} of the time, {shares}. A blind guess is "
            f"right {percent(chance)} of the time.",
            "This holds for every method and any amount of computing, and for the true population: no model has to be "
            f"right. The statement itself may be wrong with a probability of {percent(spent)} at most.",
            *asked,
        ]
    if c["status"] == "MODEL_ONLY":
        return [
            f"If the estimated densities are the truth, whoever sees a released {what} guesses the group right at most "
            f"{percent(c['model_accuracy_upper'])} of the time (a blind guess: {percent(chance)}).",
            "Nothing here proves that they are the truth. Treat this as the outcome of a model, not as a guarantee.",
            *asked,
        ]
    if c["status"] == "REFUTED":
        return [
            "Do not rely on the model-based bound. An actual adversary did better than it allows: the two groups are "
            f"at least Δ = {distance(c['attack_lower'])} apart, and the model says at most "
            f"{distance(c['model_upper'])}. The estimated densities are wrong.",
            *asked,
        ]
    return ["No bound comes down to the target. Encode more strongly, release coarser cells, or use more rows.", *asked]


def statements(certificate: dict[str, Any]) -> list[dict[str, str]]:
    """The three kinds of statement, side by side: name, bound, what it says, what it rests on."""
    c = certificate
    found = []
    if c["cell_upper"] is not None:
        found.append(
            {
                "name": "Certified",
                "bound": f"Δ ≤ {distance(c['cell_upper'])}",
                "accuracy": f"≤ {percent(c['cell_accuracy_upper'])}",
                "says": "No classifier on the released cells does better, for whatever task.",
                "rests": f"Held-out persons of the true population; error probability {percent(c['spent']['cells'])}.",
            }
        )
    if c["model_upper"] is not None:
        spent = c["spent"].get("model", 0)
        how = f"error probability {percent(spent, 2)}" if spent else "an exact sum"
        found.append(
            {
                "name": "Model",
                "bound": f"Δ ≤ {distance(c['model_upper'])}",
                "accuracy": f"≤ {percent(c['model_accuracy_upper'])}",
                "says": "No adversary does better, if the estimated densities are the truth.",
                "rests": f"The densities; {how}.",
            }
        )
    if c["attack_lower"] is not None:
        lower = 0.5 * (1 + c["attack_lower"])
        reached = f"An actual adversary reaches this: {c['attack_by']}."
        nothing = f"No adversary was shown to beat a blind guess; the most promising was {c['attack_by']}."
        found.append(
            {
                "name": "Attack",
                "bound": f"Δ ≥ {distance(c['attack_lower'])}",
                "accuracy": f"≥ {percent(lower)} between two groups",
                "says": reached if c["attack_lower"] > 0 else nothing,
                "rests": f"Held-out persons of the true population; error probability {percent(c['spent']['attack'])}.",
            }
        )
    return found


def consequences(certificate: dict[str, Any]) -> list[str]:
    """What follows for decisions made from the release."""
    c = certificate
    upper, kind = (c["cell_upper"], "certified") if c["cell_upper"] is not None else (c["model_upper"], "model-based")
    if upper is None:
        return []
    lines = [
        f"Demographic parity: two groups' selection rates differ by at most {distance(upper)} ({kind}), for every "
        "decision rule on the release.",
        f"Four-fifths rule: kept by every rule that selects at least {percent(min(1, 5 * upper))} of the group that it "
        "selects most."
        if 5 * upper < 1
        else "Four-fifths rule: not guaranteed by this bound.",
    ]
    odds = c["cell_odds_upper"] or c["model_odds_upper"]
    if odds:
        lines.append(f"Equalized odds: within one label, rates differ by at most {distance(max(odds.values()))}.")
    return lines


def _target(c: dict[str, Any]) -> list[str]:
    if c["target_accuracy"] is not None:
        return [f"The target was a guess that is right at most {percent(c['target_accuracy'])} of the time."]
    if c["target"] is not None:
        return [f"The target was a distance of at most Δ = {distance(c['target'])}."]
    return []

"""What a person needs to know after `fit`: who can guess what, what is left, which file goes where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fairflows.bounds.derived import rounded_down, rounded_up
from fairflows.certificate.document import MEANING
from fairflows.compute.display import Columns, html_card
from fairflows.explain.usefulness import StillTells
from fairflows.release.cell_release import CellRelease
from fairflows.release.crossfit import CrossFit

if TYPE_CHECKING:
    from fairflows.workflow.job import Fit

_SHOWN = 8  # columns


def summary(fit: Fit, out: Path, shared: str) -> str:
    """The result of a `fit` in a few lines, and which file goes where."""
    return "\n\n".join([result_text(fit), _files(fit, out, shared)])


def result_text(fit: Fit) -> str:
    """The result of a `fit` in a few lines."""
    guesses = [f"  {name:<8} {text}" for name, text in _guesses(fit)]
    parts = ["\n".join([_question(fit), *guesses, *(f"  {line}" for line in _blind(fit))])]
    if fit.tells is not None:
        parts.append("\n".join([*_label(fit.tells), _tells(fit.tells), *_redrawn(fit)]))
    parts.append("\n".join([f"{repr(fit.certificate).splitlines()[0]}; {_rests(fit)}", *_not_covered(fit)]))
    return "\n\n".join(parts)


def result_html(fit: Fit) -> str:
    """The same for a notebook."""
    notes, rows = [*_blind(fit), *_not_covered(fit)], []
    if fit.tells is not None:
        notes += [*_label(fit.tells), *_redrawn(fit)]
        rows = [(told.name, f"{100 * told.told:.0f} %") for told in [*fit.tells.columns, fit.tells.sensitive]]
    told = Columns(rows, closed="Of what a blind guess gets wrong, a shared row tells")
    heading = f"{MEANING[fit.certificate.status]}; {_rests(fit)}"
    guesses = Columns(_guesses(fit))
    return html_card(heading, _question(fit), guesses, notes, told if rows else "", badge=fit.certificate.badge)


def _question(fit: Fit) -> str:
    pair = "" if len(fit.certificate.n) == 2 else " of any two groups"
    return (
        f"Guessing {fit.certificate.sensitive}{pair}, both groups counted alike (a blind guess is right 50 % of the "
        "time):"
    )


def _guesses(fit: Fit) -> list[tuple[str, str]]:
    """How often guesses of the group are right before, after, and in the attack."""
    c = fit.certificate
    lines = [("before", f"about {50 * (1 + _raw(fit)):.1f} %, from the raw rows, by the best of our adversaries")]
    if c.cell_upper is not None:
        confidence = f"{100 * (1 - c.delta):g} %"
        after = rounded_up(50 * (1 + c.cell_upper), 1)
        lines.append(("after", f"at most {after} %, by anybody, in the real population ({confidence} confidence)"))
    elif c.model_upper is not None:
        after = rounded_up(50 * (1 + c.model_upper), 1)
        lines.append(("after", f"at most {after} % if the estimated densities were the truth; nothing about the world"))
    found = rounded_down(50 * (1 + fit.audit.attack_lower), 1)
    return [*lines, ("tried", f"at least {found} % is what {fit.audit.best} reaches against it")]


def _raw(fit: Fit) -> float:
    """The Δ that adversaries find in the raw rows, on validation persons."""
    return max(attack.validation for attack in fit.before.attacks)


def _blind(fit: Fit) -> list[str]:
    c, lines = fit.certificate, []
    if c.target is not None and _raw(fit) <= c.target:
        lines.append("The raw rows already tell no more than the target, as far as our adversaries find.")
    if len(c.n) > 2:
        lines.append(f"A blind guess among all {len(c.n)} groups is right {100 / len(c.n):.1f} % of the time.")
    return lines


def _rests(fit: Fit) -> str:
    c = fit.certificate
    asked = "" if c.target is not None or c.target_accuracy is not None else " No target was given."
    return f"what that rests on is in the report.{asked}"


def _not_covered(fit: Fit) -> list[str]:
    if isinstance(fit.model, CrossFit):
        return []
    return ["It covers new persons, and not the rows that the model was trained on or chosen by, which are most of the "
            "file: encode others with it to share covered rows alone."]  # fmt: skip


def _label(tells: StillTells) -> list[str]:
    if tells.label is None:
        return []
    label = tells.label
    return [
        f"The label {label.name}, learnt from the shared rows, is right for {100 * label.released:.1f} % of other "
        f"persons (from raw rows {100 * label.raw:.1f} %, blind guess {100 * label.majority:.1f} %)."
    ]


def _tells(tells: StillTells) -> str:
    told = [*tells.columns[:_SHOWN], tells.sensitive]
    shown = ", ".join(f"{column.name} {100 * column.told:.0f} %" for column in told)
    more = "" if len(tells.columns) <= _SHOWN else f" ({len(tells.columns) - _SHOWN} more columns in the report)"
    return f"Of what a blind guess gets wrong, a shared row tells: {shown}{more}."


def _redrawn(fit: Fit) -> list[str]:
    """How many drawn rows were somebody's own, and are not shared."""
    models = fit.model.models_ if isinstance(fit.model, CrossFit) else [fit.model]
    laws = [model.rows_given_cell_ for model in models if isinstance(model, CellRelease)]
    drawn = [law.n_redrawn_ for law in laws if law is not None]
    return (
        [f"{sum(drawn):,} drawn rows were the own row of one training person, and were drawn again."] if drawn else []
    )


def _files(fit: Fit, out: Path, shared: str) -> str:
    files = f"{out / shared}, {out / 'certificate.json'}, {out / 'report-public.html'}"
    lines = [
        f"Share        {files}" if fit.is_good else f"Not yet      {files}: what was asked for is not reached",
        f"Keep         {out / 'report.html'}" + (f", {out / 'frontier.csv'}" if fit.candidates else ""),
        f"Never share  {out / 'model'}: whoever has it and the key can tell persons apart",
        f"To check     fairflows check {out / 'certificate.json'} {out / shared}",
    ]
    return "\n".join(lines)

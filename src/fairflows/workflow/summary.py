"""What a person at a terminal needs to know after `fit`: who can guess what, what is left, which file goes where."""

from __future__ import annotations

from pathlib import Path

from fairflows.bounds.derived import rounded_up
from fairflows.explain.usefulness import StillTells, Told
from fairflows.release.cell_release import CellRelease
from fairflows.release.crossfit import CrossFit
from fairflows.workflow.job import Fit

_SHOWN = 8  # columns


def summary(fit: Fit, out: Path, shared: str) -> str:
    """The result of a `fit` in a few lines."""
    parts = [_guesses(fit)]
    if fit.tells is not None:
        parts.append("\n".join([_tells(fit.tells), *_redrawn(fit)]))
    parts.append(_verdict(fit))
    parts.append(_files(fit, out, shared))
    return "\n\n".join(parts)


def _guesses(fit: Fit) -> str:
    c, raw = fit.certificate, max(attack.validation for attack in fit.before.attacks)
    name, chance = c.sensitive, 100 / len(c.n)
    pair = "" if len(c.n) == 2 else " of any two groups"
    lines = [f"Guessing {name}{pair}, both groups counted alike (a blind guess is right 50 % of the time):"]
    lines.append(f"  before   about {50 * (1 + raw):.1f} %, from the raw rows, by the best of our adversaries")
    if c.cell_upper is not None:
        confidence = f"{100 * (1 - c.delta):g} %"
        after = rounded_up(50 * (1 + c.cell_upper), 1)
        lines.append(f"  after    at most {after} %, by anybody, in the real population ({confidence} confidence)")
    elif c.model_upper is not None:
        after = rounded_up(50 * (1 + c.model_upper), 1)
        lines.append(f"  after    at most {after} % if the estimated densities were the truth; nothing about the world")
    found = 50 * (1 + fit.audit.attack_lower)
    lines.append(f"  tried    at least {found:.1f} % is what {fit.audit.best} reaches against it")
    if c.target is not None and raw <= c.target:
        lines.append("  The raw rows already tell no more than the target, as far as our adversaries find.")
    if len(c.n) > 2:
        lines.append(f"  A blind guess among all {len(c.n)} groups is right {chance:.1f} % of the time.")
    return "\n".join(lines)


def _verdict(fit: Fit) -> str:
    c = fit.certificate
    asked = "" if c.target is not None or c.target_accuracy is not None else " No target was given."
    lines = [f"{repr(c).splitlines()[0]}; what that rests on is in the report.{asked}"]
    if not isinstance(fit.model, CrossFit):
        lines.append("It covers new persons, and not the rows that the model was trained on or chosen by, which are "
                     "most of the file: encode others with it to share covered rows alone.")  # fmt: skip
    return "\n".join(lines)


def _tells(tells: StillTells) -> str:
    lines = []
    if tells.label is not None:
        label = tells.label
        lines.append(
            f"The label {label.name}, learnt from the shared rows, is right for {100 * label.released:.1f} % of other "
            f"persons (from raw rows {100 * label.raw:.1f} %, blind guess {100 * label.majority:.1f} %)."
        )
    shown = ", ".join(_share(told) for told in [*tells.columns[:_SHOWN], tells.sensitive])
    more = "" if len(tells.columns) <= _SHOWN else f" ({len(tells.columns) - _SHOWN} more columns in the report)"
    lines.append(f"Of what a blind guess gets wrong, a shared row tells: {shown}{more}.")
    return "\n".join(lines)


def _redrawn(fit: Fit) -> list[str]:
    """How many drawn rows were somebody's own, and are not shared."""
    models = fit.model.models_ if isinstance(fit.model, CrossFit) else [fit.model]
    laws = [model.rows_given_cell_ for model in models if isinstance(model, CellRelease)]
    drawn = [law.n_redrawn_ for law in laws if law is not None]
    return (
        [f"{sum(drawn):,} drawn rows were the own row of one training person, and were drawn again."] if drawn else []
    )


def _share(told: Told) -> str:
    return f"{told.name} {100 * told.told:.0f} %"


def _files(fit: Fit, out: Path, shared: str) -> str:
    files = f"{out / shared}, {out / 'certificate.json'}, {out / 'report-public.html'}"
    lines = [
        f"Share        {files}" if fit.is_good else f"Not yet      {files}: what was asked for is not reached",
        f"Keep         {out / 'report.html'}" + (f", {out / 'frontier.csv'}" if fit.candidates else ""),
        f"Never share  {out / 'model'}: whoever has it and the key can tell persons apart",
        f"To check     fairflows check {out / 'certificate.json'} {out / shared}",
    ]
    return "\n".join(lines)

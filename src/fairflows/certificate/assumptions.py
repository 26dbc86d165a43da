"""The sentences printed with a certificate: what it rests on, and what it does not cover."""

from __future__ import annotations

from collections.abc import Sequence

from fairflows.certificate.document import Certificate
from fairflows.certificate.evidence import CellEvidence
from fairflows.release.released import Released
from fairflows.table.table import Table


def assumptions(
    certificate: Certificate,
    model: Released,
    rows: Table,
    cells: Sequence[CellEvidence],
    *,
    loses_odds: bool,
    limits: Sequence[str],
) -> tuple[str, ...]:
    """Those sentences that apply to a certificate of a model from these rows.

    There are no `cells` where none are certified; `loses_odds` says that bounds given the label are left out because
    other densities than the model's own were used; `limits` say what adversaries could not try.
    """
    encoder, ledger, released, drawn = model.encoder, model.ledger, certificate.released, model.draws_rows
    has_names, most_rows = rows.persons.named, certificate.most_rows
    is_randomised = (encoder is not None and encoder.is_randomised) or any(part.eta < 1 for part in cells)
    what = " and ".join("row drawn from the cell" if drawn and part == "cell" else part for part in released)
    sentences = [
        f"The {what} {'are' if len(released) > 1 else 'is'} all that is released. Functions of that are covered; "
        "bounds of separate releases do not add up to one of both, and predictions made from the original rows are not "
        "covered.",
    ]
    if drawn:
        sentences.append(
            "A released row is drawn anew each time from a law of rows given the cell, which is the same for every "
            "group. Whoever sees the row knows no more of the group than whoever sees the cell, so that the bounds of "
            "the cell cover the row."
        )
    if model.is_foreign:
        sentences.append(
            "Each different row that the model gives is a cell. What it gives for a row depends on that row alone, and "
            "on no other that is transformed with it."
        )
    if encoder is not None and encoder.needs_attribute:
        sentences.append(
            "The groups are those that the rows say; a group label that is wrong at encoding is not covered."
        )
    if cells:
        sentences.append(
            "The certifying persons are independent draws, group by group, from the distribution that the release will "
            "be used on."
        )
        sentences.append(
            "Which groups there are was decided by the sensitive column alone, and by no other column of these persons."
        )
        if len(cells) == 1:
            sentences += [
                "The bound is for a fresh person; rows that the model was trained on are not covered.",
                "The encoder, the cells and their number were fixed before these persons were looked at.",
            ]
        else:
            dealt = "a keyed hash of their identifier" if has_names else "chance"
            sentences.append(
                f"{len(cells)} models share out the persons by {dealt}. Each encodes only persons that it has not "
                "seen, and its encoder, its cells and their number were fixed without them. So the bound covers every "
                "row of the table that the models were fitted with, and fresh persons."
            )
            if not has_names:
                sentences.append(
                    "The rows of that table are covered as they were released, once, when the models were fitted: "
                    "nobody knows later which model has not seen whom."
                )
        if most_rows > 1:
            sentences += [
                f"No person has more than {most_rows} rows. The bound is about a random row of what is released; that "
                "for a random person is about one random row of hers. Each holds at its own δ, both together at twice "
                "that. All rows of one person linked together are covered by neither, so identifiers are not released.",
            ]
        if any(any(fold.merged.values()) for statement in certificate.counts for fold in statement.folds):
            sentences.append(
                "Cells with fewer than ten of these persons of a group are merged in the printed counts, and count as "
                "if they told the group: the bounds are larger for it, never smaller."
            )
        if not has_names:
            sentences.append("No identifier says whose rows these are: no person has two of them.")
        if certificate.cell_odds_upper:
            sentences.append("Bounds given the label hold for that label, and all of them together at their own δ.")
    if is_randomised and has_names:
        alike = "has always the same cell" if drawn else "is always released alike"
        sentences.append(f"The key behind coins and noise is secret, and one person {alike}.")
    elif is_randomised:
        sentences.append(
            "Coins and noise are fresh for every row, since nobody says whose rows they are: no person is released "
            "twice."
        )
    if certificate.model_upper is not None:
        sentences.append(
            "The model-based bound takes the estimated densities for the truth. It says nothing about how far they are "
            "from it; the attack and the check of the densities do."
        )
    if loses_odds:
        sentences.append("Under other densities than the model's own, nothing is said given the label.")
    sentences += limits
    if "latent" in released:
        sentences.append(
            "The noise key is secret, no person is encoded by two models or two keys, and identifiers, index and order "
            "of the rows are not released."
        )
    if certificate.look > 1:
        sentences.append(
            f"This is certificate {certificate.look} from these persons, and spends its share of δ. That covers models "
            "that were fixed beforehand, or tried because an earlier one did not meet the target. A model that was "
            "chosen after reading earlier bounds of the same persons needs new persons."
        )
    sentences.append(
        "Each kind of statement has its own probability of error, listed as spent; all of them hold together but for "
        "the sum."
    )
    if not model.secret:
        sentences.append(
            "The model has no key, so there is no seal: what cannot be computed again, as the attack, is taken on "
            "trust."
        )
    if ledger is None:
        sentences.append(
            "The model keeps no ledger: that these rows were neither trained on nor certified on before is taken on "
            "trust."
        )
    elif not ledger.comparable(ledger.read(rows.X, rows.persons)) and model.kept_counts(rows) is None:
        sentences.append(
            "Persons are not named as in training, or not at all, and too many rows are alike: that none of these was "
            "trained on is taken on trust."
        )
    return tuple(sentences)

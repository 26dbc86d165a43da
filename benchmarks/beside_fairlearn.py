"""Predict income on Adult with fairlearn's methods and with ours: accuracy, parity, and what each output tells of sex.

    python benchmarks/beside_fairlearn.py

Every method learns from the same persons, and all use scikit-learn's boosted trees where they need a classifier. What a
method hands over (answers, a table, a score, cells) is then attacked by `audit`, whose adversaries learn from persons
that no method has seen. Means and standard deviations over five random splits; prints the lines of the table in
docs/how-to/fairlearn.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from fairlearn.metrics import demographic_parity_difference
from fairlearn.postprocessing import ThresholdOptimizer
from fairlearn.preprocessing import CorrelationRemover
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score

from fairflows import FairCells, FairMatching, Release, Table, audit, load_adult
from fairflows.encoder.base import Encoder
from fairflows.exceptions import DataWarning


@dataclass(frozen=True)
class Output:
    """What a method gives for rows: its answers, and what it hands over."""

    answers: np.ndarray
    as_input_type: pd.DataFrame


Method = Callable[[Table], Callable[[Table], Output]]
"""Fitted to rows, it gives the output of others."""


def nothing(train: Table) -> Callable[[Table], Output]:
    """Boosted trees on the rows as they are."""
    model = HistGradientBoostingClassifier(random_state=0).fit(_numbers(train), train.y)
    return lambda rows: Output(model.predict(_numbers(rows)), _numbers(rows))


def threshold_optimizer(train: Table) -> Callable[[Table], Output]:
    """fairlearn: a threshold for each group, randomised where need be."""
    model = ThresholdOptimizer(
        estimator=HistGradientBoostingClassifier(random_state=0),
        constraints="demographic_parity",
        predict_method="predict_proba",
    ).fit(_numbers(train), train.y, sensitive_features=train.a)

    def use(rows: Table) -> Output:
        answers = np.asarray(model.predict(_numbers(rows), sensitive_features=rows.a, random_state=0))
        return Output(answers, pd.DataFrame({"answer": answers}))

    return use


def correlation_remover(train: Table) -> Callable[[Table], Output]:
    """fairlearn: columns without linear correlation with the attribute, then boosted trees."""
    remover = CorrelationRemover(sensitive_feature_ids=["sensitive"]).fit(_numbers(train).assign(sensitive=train.a))

    def changed(rows: Table) -> pd.DataFrame:
        return pd.DataFrame(np.asarray(remover.transform(_numbers(rows).assign(sensitive=rows.a)))).add_prefix("x")

    model = HistGradientBoostingClassifier(random_state=0).fit(changed(train), train.y)
    return lambda rows: Output(model.predict(changed(rows)), changed(rows))


def encoder(make: Callable[[], Encoder]) -> Method:
    """One of ours; its answers are a function of what it hands over."""

    def fit(train: Table) -> Callable[[Table], Output]:
        model = make().fit(train)
        given = (lambda rows: {"sensitive_features": rows.a}) if model.traits.needs_attribute else (lambda rows: {})
        return lambda rows: Output(model.predict(rows.X, **given(rows)), model.transform(rows.X, **given(rows)))

    return fit


METHODS: dict[str, Method] = {
    "boosted trees on the rows as they are | the rows": nothing,
    "fairlearn `ThresholdOptimizer` | answers": threshold_optimizer,
    "fairlearn `CorrelationRemover` | a table": correlation_remover,
    "`FairMatching(density='counts')` | a table": encoder(lambda: FairMatching(density="counts")),
    "`Release(FairMatching(density='counts'), n_cells=8)` | one of 8 cells": encoder(
        lambda: Release(FairMatching(density="counts"), n_cells=8, output="cell")
    ),
    "`FairCells(8, target=0.07)` | one of 8 cells": encoder(lambda: FairCells(8, target=0.07)),
    "`FairCells(8, target=0.1, attribute='training')` | one of 8 cells": encoder(
        lambda: FairCells(8, target=0.1, attribute="training")
    ),
}


def measure(method: Method, train: Table, seen_by_adversaries: Table, test: Table) -> dict[str, float]:
    """Accuracy and parity of the answers for test persons; how often the best adversary guesses the group (balanced).

    The guesses are counted among persons that the adversary was chosen by, and bounded from below among test persons.
    """
    use = method(train)
    learnt_from, attacked = use(seen_by_adversaries), use(test)
    found = audit(
        (learnt_from.as_input_type.reset_index(drop=True), attacked.as_input_type.reset_index(drop=True)),
        seen_by_adversaries,
        test,
        quick=True,
    )
    return {
        "accuracy": accuracy_score(test.y, attacked.answers),
        "parity": demographic_parity_difference(test.y, attacked.answers, sensitive_features=test.a),
        "guessed": (1 + found.attacks[0].validation) / 2,
        "guessed at least": (1 + found.attack_lower) / 2,
    }


def _numbers(rows: Table) -> pd.DataFrame:
    return pd.get_dummies(rows.X, dtype=float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="random splits")
    n_seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore", DataWarning)
    adult = load_adult()
    print("| method | hands over | accuracy | parity | sex guessed right | proven, at least |")
    print("|---|---|---|---|---|---|")
    for name, method in METHODS.items():
        found = []
        for seed in range(n_seeds):
            train, seen_by_adversaries, test = adult.split(test=0.3, validation=0.3, random_state=seed)
            found.append(measure(method, train, seen_by_adversaries, test))
        mean, sd = pd.DataFrame(found).mean(), pd.DataFrame(found).std()
        print(
            f"| {name} | {mean['accuracy']:.3f} ± {sd['accuracy']:.3f} | {mean['parity']:.3f} ± {sd['parity']:.3f} "
            f"| {mean['guessed']:.1%} | {mean['guessed at least']:.1%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

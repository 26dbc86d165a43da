"""What whole rows drawn from 64 matched cells keep of Adult, and what they tell of sex.

    python benchmarks/whole_rows.py [--cells 64] [--seeds 2]

Four fifths of the persons are fitted to, and one fifth is judged; persons to come are certified at δ = .05. ``label``
learns the true label from drawn rows and predicts that of new persons from theirs; ``drawn label`` learns the drawn one
instead. ``sex`` is boosted trees' balanced accuracy on drawn rows. The columns: how often a person's own value is
predicted from her drawn row, the majority, and what the other raw columns tell (`usefulness`).
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import balanced_accuracy_score

import fairflows as ff
from fairflows.encoder.scores import feature_matrix, fit_features
from fairflows.exceptions import DataWarning
from fairflows.table.domain import Domain, Seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    for seed in range(arguments.seeds):
        train, test = ff.load_adult().split(validation=0, random_state=seed)
        release = ff.Release(n_cells=arguments.cells, random_state=seed)
        drawn = release.fit_transform(train), release.transform(test)
        features = [frame[list(train.X)] for frame in drawn]
        tells = ff.usefulness(release, train, test, encoded=drawn, most_rows=len(train), random_state=seed)
        label = accuracy(*features, train.y, test.y)
        from_drawn = accuracy(*features, drawn[0][str(train.y.name)], test.y)
        sex = balanced_accuracy_score(test.a, predicted(*drawn, train.a, class_weight="balanced"))
        certified = ff.certify(release, train, delta=0.05).cell_upper
        print(
            f"seed {seed}: certified ≤ {certified:.3f}, label {label:.3f}, drawn label "
            f"{from_drawn:.3f} (raw {accuracy(train.X, test.X, train.y, test.y):.3f}), sex {sex:.3f}"
        )
        print(tells.to_frame()[["released", "majority"]].to_string(float_format="{:.3f}".format))


def accuracy(fit: pd.DataFrame, judged: pd.DataFrame, y: pd.Series, truth: pd.Series) -> float:
    return float((predicted(fit, judged, y) == np.asarray(truth)).mean())


def predicted(fit: pd.DataFrame, judged: pd.DataFrame, y: pd.Series, class_weight: str | None = None) -> np.ndarray:
    trees = HistGradientBoostingClassifier(random_state=0, class_weight=class_weight)
    domain, codes = Domain.of(fit)
    features = fit_features(codes, Seen.of(domain, codes), pd.get_dummies(y).to_numpy(dtype=np.float64)[:, 1:])
    trees.fit(feature_matrix(features, codes), np.asarray(y))
    return trees.predict(feature_matrix(features, domain.read(judged)[0]))


if __name__ == "__main__":
    main()

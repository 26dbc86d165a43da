"""Draw figure 4a for the docs from the numbers of the full run, docs/results/figure-4a.csv.

python tools/draw_front.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    """Write docs/images/figure-4a.png."""
    rows = pd.read_csv(DOCS / "results" / "figure-4a.csv", dtype=str)
    fig, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
    for ax, (data, part) in zip(axes, rows.groupby("data", sort=False), strict=True):
        (delta, delta_error), (accuracy, accuracy_error) = (
            part[name].str.split(" ± ", expand=True).astype(float).T.to_numpy() for name in ("Δ", "accuracy")
        )
        ax.errorbar(delta, accuracy, accuracy_error, delta_error, marker="o", color="#0072B2", capsize=2)
        for x, y, gamma in zip(delta, accuracy, part["γ"], strict=True):
            ax.annotate(gamma, (x, y), textcoords="offset points", xytext=(5, -11), fontsize=8)
        ax.set(title=data.replace(", 13 of 25 schools", " (13 schools)"), xlabel="Δ of the densities; numbers are γ")
        ax.set_xlim(0, 1.09)
        ax.margins(y=0.2)
    axes[0].set_ylabel("accuracy")
    fig.savefig(DOCS / "images" / "figure-4a.png", dpi=130)


if __name__ == "__main__":
    main()

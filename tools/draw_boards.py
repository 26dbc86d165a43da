"""Draw FARE's boards for the docs from the numbers of the full run, docs/results/board-fare.csv.

python tools/draw_boards.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

DOCS = Path(__file__).parent.parent / "docs"
TITLES = {
    "california": "sex, California",
    "states": "sex, all states",
    "age65": "age 65, all states",
    "transfer": "Health, other label",
    "race3": "race in 3 groups, 4 classes",
    "race5": "race in 5 groups",
    "race9": "race in 9 groups",
}
LINES = {
    ("FairCells, no attribute", "counted"): ("FairCells, no attribute", "#0072B2", "o-"),
    ("FairCells", "counted"): ("FairCells", "#56B4E9", "s--"),
    ("FairTree", "blocks"): ("FairTree", "#009E73", "^--"),
    ("FARE", "counted"): ("FARE, our bound", "#E69F00", "d-"),
    ("FARE", "FARE's"): ("FARE, its own bound", "#D55E00", "v-"),
}


def main() -> None:
    """Write docs/images/boards.png."""
    rows = pd.read_csv(DOCS / "results" / "board-fare.csv")
    rows = rows[rows["downstream"] == "best"]
    fig, axes = plt.subplots(2, 4, figsize=(11, 5), layout="constrained")
    for ax, (name, title) in zip(axes.flat, TITLES.items(), strict=False):
        board = rows[rows["board"] == name]
        raw = board[board["method"] == "raw"]["accuracy"].mean()
        ax.axhline(raw, color="#999999", linewidth=1, linestyle=":", label="original columns")
        for (method, bound), (label, colour, style) in LINES.items():
            own = board[(board["method"] == method) & (board["bound"] == bound)]
            points = own.groupby("limit")[["certified", "accuracy"]].mean().drop_duplicates().sort_values("certified")
            ax.plot(points["certified"], points["accuracy"], style, color=colour, label=label, markersize=4)
        ax.set(title=title, xlim=(0, None))
        ax.title.set_fontsize(10)
    for ax in axes[:, 0]:
        ax.set_ylabel("accuracy")
    for ax in (*axes[1, :3], axes[0, 3]):
        ax.set_xlabel("certified Δ ≤, δ = .05")
    axes[1, 3].axis("off")
    axes[1, 3].legend(*axes[0, 0].get_legend_handles_labels(), loc="center", frameon=False)
    fig.savefig(DOCS / "images" / "boards.png", dpi=120)


if __name__ == "__main__":
    main()

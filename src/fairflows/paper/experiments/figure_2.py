"""Figure 2: samples of the four Gaussian blobs."""

from __future__ import annotations

import pandas as pd

from fairflows.paper.experiments.figures import COLOURS, new_figure
from fairflows.paper.experiments.result import Result
from fairflows.paper.experiments.settings import FIRST_SEED, Setting, labels_of
from fairflows.table.synthetic import make_gaussians


def run(setting: Setting) -> Result:
    """Draw 200 rows of each group."""
    table, _ = make_gaussians(400, random_state=FIRST_SEED)
    figure, ((ax,),) = new_figure()
    for group, colour in zip(table.groups, COLOURS, strict=False):
        for label, marker in ((1, "o"), (0, "*")):
            rows = ((table.a == group) & (labels_of(table) == label)).to_numpy()
            ax.scatter(
                *table.X[rows].to_numpy().T, s=12, marker=marker, color=colour, label=f"a = {group}, y = {label}"
            )
    ax.set_xlabel("$x_1$")
    ax.set_ylabel("$x_2$")
    ax.legend(fontsize=7)
    means = table.X.groupby(table.a.to_numpy()).mean().rename_axis("a").reset_index()
    share = [labels_of(table)[table.a == group].mean() for group in table.groups]
    summary = pd.DataFrame({"a": means["a"], "mean x1": means["x1"], "mean x2": means["x2"], "P(y = 1)": share})
    return Result(summary, "drawn: the four blobs, 200 rows of each group", figure=figure)

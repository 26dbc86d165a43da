"""Figure 9: matches x̃ = f_b⁻¹(f_a(x)) on Crime, their clusters and likelihoods, without and with fairness."""

from __future__ import annotations

import pandas as pd

from fairflows.explain import matched_pairs
from fairflows.paper.experiments.figures import COLOURS, new_figure
from fairflows.paper.experiments.models import fit_crime
from fairflows.paper.experiments.result import FIRST_SEED, Result, Setting

PAPER = {0.0: (-4.3, -130.1), 1.0: (-2.8, -3.0)}  # mean log-likelihood of one cluster and of its match
N_CLUSTERS = 6


def run(setting: Setting) -> Result:
    """Match all training rows with γ = 0 and γ = 1."""
    fitted = fit_crime(setting, [FIRST_SEED], tuple(PAPER))
    rows, clusters_of = [], {}
    figure, axes = new_figure(2, 2, 4.2, 3.8)
    for panel, (gamma, encoder) in zip(axes, zip(PAPER, fitted.frontier.encoders, strict=True), strict=True):
        pairs = matched_pairs(encoder, fitted.train.X, sensitive_features=fitted.train.a)
        clusters = pairs.clusters(n_clusters=N_CLUSTERS)
        summary = pairs.summary(clusters)
        clusters_of[f"gamma-{gamma:g}"] = summary.reset_index()
        widest = summary.loc[(summary["log p(x)"] - summary["log p(match)"]).abs().idxmax()]
        everybody = pairs.summary(0 * clusters).iloc[0]
        rows.append(
            {
                "gamma": gamma,
                "log p(x), all": everybody["log p(x)"],
                "log p(match), all": everybody["log p(match)"],
                "log p(x), widest cluster": widest["log p(x)"],
                "log p(match), widest cluster": widest["log p(match)"],
                "paper: log p(x)": PAPER[gamma][0],
                "paper: log p(match)": PAPER[gamma][1],
            }
        )
        for ax, group in zip(panel, pairs.sides, strict=True):
            place, real = pairs.embedding(group, random_state=0), pairs.group == group
            for marker, mine in (("o", real), ("x", ~real)):
                colours = [COLOURS[c % len(COLOURS)] for c in clusters[mine]]
                ax.scatter(*place[mine].T, c=colours, marker=marker, s=6, lw=0.7)
            ax.set(title=f"γ = {gamma:g}, a = {group}", xticks=[], yticks=[])
    note = "Which cluster the paper names is not said; the widest is the one whose match differs most in likelihood."
    return Result(pd.DataFrame(rows), fitted.data, [note], figure, clusters_of)

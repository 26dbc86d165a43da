"""Bijections between the cells of two groups: sort-and-match, label split, and what a mixture of both reveals.

A map is an integer array f over cell codes: a person of the group in cell x is released as cell f[x]. The reference
keeps its cells. Of K groups each is matched to the same reference; any two are then matched to each other as well as
if one of them had been the reference, so the choice of it changes which cells carry the latent, never a distance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fairflows.density.cell_density import FloatArray, IntArray
from fairflows.exceptions import ParameterError


def sort_and_match(log_p_reference: FloatArray, log_p_group: FloatArray) -> IntArray:
    """The bijection of smallest statistical distance: the k-th likeliest cell goes to the reference's k-th likeliest.

    With i and j sorting p_ref and p_group, f(x_{j_k}) = x_{i_k}. Swapping two images of an optimal map that is out of
    order cannot raise Δ = ½ Σ_z |p_ref(z) − p_group(f⁻¹(z))|, so the sorted map attains the minimum (Balunović et
    al., 2022). Equal probabilities are matched in the order of their codes, so that a law matched to itself stays put.

    Parameters
    ----------
    log_p_reference, log_p_group : array of shape (m,)
        Log-probabilities of the same m cells.

    Returns
    -------
    array of int, shape (m,)
        The cell that each of the group's cells is sent to.

    Examples
    --------
    >>> sort_and_match(np.log([0.2, 0.3, 0.5]), np.log([0.6, 0.1, 0.3]))
    array([2, 0, 1])
    """
    return _matching(np.argsort(log_p_reference, kind="stable"), np.argsort(log_p_group, kind="stable"))


def label_split(
    log_p_reference: FloatArray, log_p_group: FloatArray, labels_reference: ArrayLike, labels_group: ArrayLike
) -> IntArray:
    """Sort-and-match within each predicted label, so that a cell goes to one with the same prediction.

    Where the two groups do not have equally many cells of a label (their classifiers differ), the likeliest cells of
    the label are matched, as many as both have; what is left over, the least likely cells of labels that one group
    has more of, is sorted and matched across labels. So the map stays a bijection, and the mass that has to change its
    label is as small as the counts allow.

    Parameters
    ----------
    log_p_reference, log_p_group : array of shape (m,)
        Log-probabilities of the same m cells.
    labels_reference, labels_group : array of shape (m,)
        The label predicted for each cell in each group.

    Returns
    -------
    array of int, shape (m,)
        The cell that each of the group's cells is sent to.

    Examples
    --------
    >>> label_split(np.log([0.2, 0.3, 0.5]), np.log([0.6, 0.1, 0.3]), [0, 0, 1], [0, 0, 1])
    array([1, 0, 2])
    """
    m = len(log_p_reference)
    _, labels = np.unique(np.concatenate([labels_reference, labels_group]), return_inverse=True)
    of_reference, of_group = labels[:m], labels[m:]
    n_labels = int(labels.max()) + 1
    shared = np.minimum(np.bincount(of_reference, minlength=n_labels), np.bincount(of_group, minlength=n_labels))
    return _matching(
        _order_within_labels(log_p_reference, of_reference, shared), _order_within_labels(log_p_group, of_group, shared)
    )


def _matching(order_reference: IntArray, order_group: IntArray) -> IntArray:
    f = np.empty_like(order_group)
    f[order_group] = order_reference
    return f


def _order_within_labels(log_p: FloatArray, labels: IntArray, shared: IntArray) -> IntArray:
    """Cells by label, then probability; all but each label's `shared` likeliest come after, in one block."""
    order = np.argsort(log_p, kind="stable")
    by_label = np.argsort(labels[order], kind="stable")
    block = labels[order][by_label]
    end_of_label = np.cumsum(np.bincount(block, minlength=len(shared)))
    from_the_top = end_of_label[block] - 1 - np.arange(len(block))
    key = np.empty_like(block)
    key[by_label] = np.where(from_the_top < shared[block], block, len(shared))
    return order[np.argsort(key, kind="stable")]


def inverse_map(f: IntArray) -> IntArray:
    """The bijection that undoes f.

    Examples
    --------
    >>> inverse_map(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    return _matching(np.arange(len(f)), f)


def mean_law(log_p: FloatArray) -> FloatArray:
    """Log of the groups' mean law Σ_a p_a / K, from log-probabilities (K, m): a reference that favours no group."""
    return np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p))


def latent_laws(log_p: FloatArray, matched: IntArray, split: IntArray, gamma: float) -> FloatArray:
    """Laws of the released cell, one row per group, when a coin picks sort-and-match with probability γ.

    p_Za(z) = γ · p_a(f_a⁻¹(z)) + (1 − γ) · p_a(g_a⁻¹(z)), with f_a the sort-and-match and g_a the label split, all of
    shape (K, m). γ = 0 is the label split alone, the most accurate; γ = 1 is sort-and-match alone, the fairest.
    """
    if not 0.0 <= gamma <= 1.0:
        raise ParameterError("gamma", "must be in [0, 1]", gamma)
    p = np.exp(log_p)
    by_matching, by_splitting = np.empty_like(p), np.empty_like(p)
    np.put_along_axis(by_matching, matched, p, axis=1)
    np.put_along_axis(by_splitting, split, p, axis=1)
    return gamma * by_matching + (1.0 - gamma) * by_splitting


def statistical_distance_of_cells(p: FloatArray, q: FloatArray, tail_p: float = 0.0, tail_q: float = 0.0) -> float:
    """Δ = ½ Σ_z |p(z) − q(z)| of two laws over cells, a direct sum in float64.

    Where p and q are given on a support only, their masses outside it, the tails, count as if they never met:
    Δ ≤ ½ (Σ_support |p − q| + tail_p + tail_q).

    Examples
    --------
    >>> statistical_distance_of_cells(np.array([0.5, 0.5]), np.array([1.0, 0.0]))
    0.5
    """
    return float(0.5 * (np.abs(p - q).sum() + tail_p + tail_q))

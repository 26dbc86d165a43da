"""Two tasks of folktables, as it builds them from the American Community Survey 2018, for California and Michigan."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.exceptions import check_choice
from fairflows.paper.datasets import ACS_COVERAGE, ACS_INCOME, Source
from fairflows.table.examples import coded_table
from fairflows.table.table import Table

State = Literal["CA", "MI"]

__all__ = ["load_acs_income", "load_acs_public_coverage"]

_NUMBERS = ("AGEP", "SCHL", "WKHP", "PINCP")  # schooling is in its order; the other columns are codes
_N_CALIFORNIA = 195_665  # of ACSIncome's rows, which come first; the file has no column of states
_CALIFORNIA = 0  # the copy's number of the state in ACSPublicCoverage


def load_acs_income(state: State | None = None) -> Table:
    """Load ACSIncome: is the income above 50,000 dollars? Sensitive: sex. Features: the ten of folktables but sex.

    Parameters
    ----------
    state : {"CA", "MI"}, default=None
        California or Michigan; by default both.

    Returns
    -------
    Table
        245,673 persons, of California 195,665; a = 1 for women. Codes of categories are those of the copy.
    """
    rows = _read(ACS_INCOME)
    is_california = np.arange(len(rows)) < _N_CALIFORNIA
    return _of_state(rows, is_california, state, label="PINCP", name="acs-income")


def load_acs_public_coverage(state: State | None = None) -> Table:
    """Load ACSPublicCoverage: is a person with a low income insured by the public? Sensitive: sex.

    Parameters
    ----------
    state : {"CA", "MI"}, default=None
        California or Michigan; by default both.

    Returns
    -------
    Table
        174,178 persons under 65 with an income of at most 30,000 dollars, of California 138,554; a = 1 for women.
    """
    rows = _read(ACS_COVERAGE)
    is_california = (rows["ST"] == _CALIFORNIA).to_numpy()
    return _of_state(rows, is_california, state, label="PUBCOV", name="acs-public-coverage")


def _read(source: Source) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(source.read()))


def _of_state(
    rows: pd.DataFrame, is_california: npt.NDArray[np.bool_], state: State | None, *, label: str, name: str
) -> Table:
    """Return the task's table for the rows of a state, or of both."""
    if state is not None:
        check_choice("state", state, ("CA", "MI"))
        rows = rows[is_california if state == "CA" else ~is_california].reset_index(drop=True)
    features = rows.drop(columns=["SEX", label])
    codes = [column for column in features if column not in _NUMBERS]
    return coded_table(
        features.astype(dict.fromkeys(codes, "category")),
        name=name,
        sensitive=rows["SEX"],
        group_names={0: "male", 1: "female"},
        label=rows[label],
    )

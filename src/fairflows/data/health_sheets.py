"""Health's original sheets, brought to one row per member and year in the columns of the aggregate ``health.csv``."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairflows.data.sources import Source
from fairflows.exceptions import DataError

SHEETS = {name: Source(f"{name}.csv", "health") for name in ("Claims", "DrugCount", "LabCount", "Members")}

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

_COLUMNS = {
    "Claims": ("MemberID", "ProviderID", "Vendor", "PCP", "Year", "Specialty", "PlaceSvc", "PayDelay", "LengthOfStay",
               "DSFS", "PrimaryConditionGroup", "CharlsonIndex", "ProcedureGroup", "SupLOS"),
    "DrugCount": ("MemberID", "Year", "DrugCount"),
    "LabCount": ("MemberID", "Year", "LabCount"),
    "Members": ("MemberID", "AgeAtFirstClaim", "Sex"),
}  # fmt: skip
_DISTINCT = {"Providers": "ProviderID", "Vendors": "Vendor", "PCPs": "PCP", "PlaceSvcs": "PlaceSvc",
             "Specialities": "Specialty", "PrimaryConditionGroups": "PrimaryConditionGroup",
             "ProcedureGroups": "ProcedureGroup"}  # fmt: skip
_AGES = {"0-9": "age_05", "10-19": "age_15", "20-29": "age_25", "30-39": "age_35", "40-49": "age_45",
         "50-59": "age_55", "60-69": "age_65", "70-79": "age_75", "80+": "age_85"}  # fmt: skip
_SEXES = {"M": "sexMALE", "F": "sexFEMALE"}
_CHARLSON = {"0": 0, "1-2": 2, "3-4": 4, "5+": 6}
_MONTHS = {f"{k}-{k + 1:>2} month{'s' if k else ''}": k + 1 for k in range(12)}
_STAY_DAYS = {"1 day": 1, "2 days": 2, "3 days": 3, "4 days": 4, "5 days": 5, "6 days": 6, "1- 2 weeks": 11,
              "2- 4 weeks": 21, "4- 8 weeks": 42, "26+ weeks": 180}  # fmt: skip

Columns = dict[str, npt.NDArray]


def read_sheet(name: str) -> pd.DataFrame:
    """One of the four sheets; texts as categories, since the largest has millions of rows and few texts."""
    source, columns = SHEETS[name], _COLUMNS[name]
    data = source.read()
    try:
        header = pd.read_csv(io.BytesIO(data), nrows=0).columns
        if lacking := [column for column in columns if column not in header]:
            raise DataError(f"{source.find()}: the sheet must have the column {lacking[0]!r}; got {', '.join(header)}.")
        texts = [column for column in columns if column not in ("MemberID", "SupLOS")]
        types = dict.fromkeys(columns, "int64") | dict.fromkeys(texts, "category")
        sheet = pd.read_csv(io.BytesIO(data), usecols=list(columns), dtype=types)
        # Categories that all look like numbers come as numbers; here they are texts as well.
        return sheet.assign(**{column: sheet[column].cat.rename_categories(str) for column in texts})
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"{source.find()}: cannot be read as the sheet {name}: {error}") from None


def aggregate(sheets: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per member and year with claims, in the columns of ``health.csv``, and ``PayDelay_total`` besides.

    Averages of claims are cut to whole numbers and those of drug and lab counts to six decimals, as in that file; what
    no claim states is 0 (maximum, minimum, average) or −1 (range, standard deviation).
    """
    claims = sheets["Claims"]
    if (twice := sheets["Members"]["MemberID"].duplicated()).any():
        raise DataError(
            f"Members must have one row a member; MemberID {sheets['Members'].MemberID[twice].iloc[0]} has more."
        )
    by_year = claims.groupby(["Year", "MemberID"], observed=True, sort=True)
    n_claims = by_year.size()
    years, members = (n_claims.index.get_level_values(key) for key in ("Year", "MemberID"))
    persons = sheets["Members"].set_index("MemberID").reindex(members)
    columns = (
        {"MemberID_t": members.to_numpy(), "YEAR_t": years.astype(str).to_numpy()}
        | _indicators(persons["AgeAtFirstClaim"], _AGES, "age_MISS")
        | _indicators(persons["Sex"], _SEXES, "sexMISS")
        | _claims_columns(claims, by_year.ngroup(), n_claims.to_numpy())
        | _monthly_columns(sheets["DrugCount"], "drug", n_claims.index)
        | _monthly_columns(sheets["LabCount"], "lab", n_claims.index)
    )
    for null in ("labNull", "drugNull"):  # the last two columns of the file
        columns[null] = columns.pop(null)
    columns["PayDelay_total"] = columns.pop("PayDelay_total")
    return pd.DataFrame(columns)


def _claims_columns(claims: pd.DataFrame, row: pd.Series, n_claims: np.ndarray) -> Columns:
    """What the claims of each member-year come to; `row` is the member-year that a claim belongs to."""
    pay_delay, stay = _plus_numbers(claims["PayDelay"]), claims["LengthOfStay"]
    columns: Columns = {"no_Claims": n_claims, "PayDelay_total": _total(pay_delay, row)}
    for name, column in _DISTINCT.items():
        columns[f"no_{name}"] = claims[column].groupby(row).nunique().to_numpy()
    columns |= _statistics("PayDelay", pay_delay, row, n_claims, ("max", "min", "ave", "stdev"))
    columns |= _statistics("LOS", _coded(stay, _STAY_DAYS), row, n_claims, ("max", "min", "ave", "stdev"))
    columns["LOS_TOT_UNKNOWN"] = _total(stay.isna() & (claims["SupLOS"] == 0), row)
    columns["LOS_TOT_SUPRESSED"] = _total(stay.isna() & (claims["SupLOS"] == 1), row)
    columns["LOS_TOT_KNOWN"] = _total(stay.notna(), row)
    months, charlson = _coded(claims["DSFS"], _MONTHS), _coded(claims["CharlsonIndex"], _CHARLSON)
    columns |= _statistics("dsfs", months, row, n_claims, ("max", "min", "range", "ave", "stdev"))
    columns |= _statistics("CharlsonIndexI", charlson, row, n_claims, ("max", "min", "ave", "range", "stdev"))
    for prefix, (column, names) in CATEGORIES.items():
        columns |= _claims_per_category(claims[column], row.to_numpy(), names, prefix)
    return columns


def _monthly_columns(sheet: pd.DataFrame, name: str, member_years: pd.Index) -> Columns:
    """Drug or lab counts, one record a month, summed up for each member-year; 0 where there is no record."""
    keys = [sheet["Year"], sheet["MemberID"]]
    months = _plus_numbers(sheet[f"{name.capitalize()}Count"]).groupby(keys, observed=True)
    n_months = months.size().reindex(member_years, fill_value=0)
    total, largest, smallest = (
        x.reindex(member_years, fill_value=0) for x in (months.sum(), months.max(), months.min())
    )
    return {
        f"{name}Count_max": largest.to_numpy(),
        f"{name}Count_min": smallest.to_numpy(),
        f"{name}Count_ave": (total * 10**6 // n_months.clip(lower=1)).to_numpy() / 10**6,
        f"{name}count_months": n_months.to_numpy(),
        f"{name}Null": (n_months == 0).to_numpy(np.int64),
    }


def _statistics(name: str, values: pd.Series, row: pd.Series, n_claims: np.ndarray, wanted: tuple[str, ...]) -> Columns:
    groups = values.groupby(row)
    largest, smallest = groups.max(), groups.min()
    statistics = {
        "max": largest.fillna(0),
        "min": smallest.fillna(0),
        "range": (largest - smallest).fillna(-1),
        "ave": groups.sum() // groups.count().clip(lower=1),
        "stdev": groups.std().where(n_claims > 1, 0.0).fillna(-1.0),
    }
    kinds = {which: np.float64 if which == "stdev" else np.int64 for which in wanted}
    return {f"{name}_{which}": statistics[which].to_numpy(kind) for which, kind in kinds.items()}


def _claims_per_category(column: pd.Series, row: np.ndarray, names: tuple[str | None, ...], prefix: str) -> Columns:
    position = {name: i for i, name in enumerate(names) if name is not None}
    code = _coded(column, position).fillna(names.index(None)).to_numpy(np.int64)
    counts = np.bincount(row * len(names) + code, minlength=(row.max() + 1) * len(names)).reshape(-1, len(names))
    return {f"{prefix}{i + 1}": counts[:, i] for i in range(len(names))}


def _indicators(column: pd.Series, names: Mapping[str, str], missing: str) -> Columns:
    _coded(column, dict.fromkeys(names, 0))  # refuses what the sheet should not hold
    return {name: (column == text).to_numpy(np.int64) for text, name in names.items()} | {
        missing: column.isna().to_numpy(np.int64)
    }


def _coded(column: pd.Series, codes: Mapping[str, int]) -> pd.Series:
    """The numbers that the sheet's texts stand for; what is not stated stays missing."""
    texts = column.cat.categories
    if unknown := sorted(set(texts) - set(codes)):
        raise DataError(f"Column {column.name!r} must hold one of {', '.join(codes)}; got {unknown[0]!r}.")
    numbers = np.array([*(codes[text] for text in texts), np.nan])  # code −1, missing, is the last one
    return pd.Series(numbers[column.cat.codes], index=column.index)


def _plus_numbers(column: pd.Series) -> pd.Series:
    """Whole numbers; "162+", which is 162 or more, counts as 162."""
    texts = column.cat.categories.str.removesuffix("+")
    wrong = texts[~texts.str.fullmatch(r"\d+")].tolist() + ["a missing value"] * bool(column.isna().any())
    if wrong:
        raise DataError(f"Column {column.name!r} must hold whole numbers such as 7 or 7+; got {wrong[0]!r}.")
    return pd.Series(texts.astype(np.int64).to_numpy()[column.cat.codes], index=column.index)


def _total(values: pd.Series, row: pd.Series) -> npt.NDArray[np.int64]:
    return values.astype(np.int64).groupby(row).sum().to_numpy()

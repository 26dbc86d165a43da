"""What the five datasets are, known without reading them."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from fairflows.paper import datasets, health
from fairflows.paper.sources import VARIABLE


@dataclass(frozen=True)
class Entry:
    """What is known about a dataset without reading it: each group's name, share of the rows and rate of y = 1."""

    name: str
    rows: int
    label: str
    groups: tuple[tuple[str, float, float], ...]
    licence: str


_NONE_STATED = "none stated"
ADULT = Entry("adult", 45_222, "income above 50K", (("male", 0.675, 0.312), ("female", 0.325, 0.114)), "CC BY 4.0")
COMPAS = Entry(
    "compas", 5_278, "no new offence", (("Caucasian", 0.398, 0.609), ("African-American", 0.602, 0.477)), _NONE_STATED
)
CRIME = Entry(
    "crime",
    1_994,
    "crime below the median",
    (("low minority share", 0.578, 0.733), ("high minority share", 0.422, 0.181)),
    "CC BY 4.0",
)
HEALTH = Entry(
    "health",
    218_414,
    "Charlson index not 1-2",
    (("under 60 or unknown", 0.644, 0.790), ("60 and over", 0.356, 0.484)),
    "competition rules",
)
LAW_SUBSET = Entry(
    "law_school", 49_449, "admitted", (("white", 0.802, 0.262), ("non-white", 0.198, 0.215)), _NONE_STATED
)
LAW_FULL = Entry(  # all 25 schools: the paper's table 3, its three parts together
    "law_school", 86_022, "admitted", (("white", 0.822, 0.283), ("non-white", 0.178, 0.208)), _NONE_STATED
)


def describe_datasets() -> pd.DataFrame:
    """The paper's five datasets: rows, groups, rates, licence, and where each would come from on this machine.

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
    only_subset = datasets.LAW_SUBSET.find() and not datasets.LAW_FULL.find()
    places = [
        (ADULT, "inside the package"),
        (COMPAS, datasets.COMPAS.whereabouts()),
        (CRIME, datasets.CRIME.whereabouts()),
        (HEALTH, health.AGGREGATE.whereabouts()),
        (LAW_SUBSET if only_subset else LAW_FULL, datasets.LAW_FULL.whereabouts() or datasets.LAW_SUBSET.whereabouts()),
    ]
    return pd.DataFrame([_describe(entry, place) for entry, place in places])


def _describe(entry: Entry, place: str | None) -> dict[str, object]:
    return {
        "name": entry.name,
        "rows": entry.rows,
        "label": entry.label,
        "groups": ", ".join(f"{group} {100 * share:.1f} %" for group, share, _ in entry.groups),
        "rates": ", ".join(f"{100 * rate:.1f} %" for _, _, rate in entry.groups),
        "licence": entry.licence,
        "at_hand": place is not None and not place.startswith("download"),
        "source": place or f"not at hand: its files must be in the folder that {VARIABLE} names",
    }

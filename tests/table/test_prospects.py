"""What is said about a table before anything is trained."""

import re

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.bounds.planning import plan_cells
from fairflows.table.prospects import best_bounds, check_groups, find_names, find_problems

N = 1200
SEX = np.random.default_rng(1).permutation(["f", "m"] * (N // 2))
TITLE = np.where(SEX == "f", "Ms", "Mr")


def rows(**columns):
    """Two groups of equal size, a harmless feature, and further columns."""
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.normal(size=N), "sex": SEX, **columns})


def said_of(column, table):
    return [said for said in find_problems(table) if re.search(rf"\b{column}\b", said)]


def test_nothing_is_said_of_a_harmless_table():
    harmless = rows(town=["Ulm", "Bonn", "Kiel"] * (N // 3), age=np.arange(N) % 60)
    assert find_problems(ff.Table(harmless, sensitive="sex")) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([7] * N, "The same in every row, or empty: c. Such columns tell nothing: drop them (drop=['c'])."),
        (np.arange(N) + 5000, "Column 'c' holds 1,200 different whole numbers in 1,200 rows, which follow the rows"),
        ([f"{v:,}" for v in np.arange(N) % 400 + 900], "c holds text, such as '1,000': each value is a category"),
        ([f"${v % 30}" for v in range(N)], "c holds text, such as '$0'"),
        ([f"{v % 30} %" for v in range(N)], "c holds text, such as '0 %'"),
        (["unknown" if v % 100 == 0 else str(v % 60) for v in range(N)], "c holds text, such as 'unknown'"),
        ([f"{v % 28 + 1:02d}.12.2023" for v in range(N)], "State their form (dates={'c': '%d.%m.%Y'})."),
        ([f"{v % 12 + 1}/28/2023 14:30" for v in range(N)], "State their form (dates={'c': '%-m/%-d/%Y %H:%M'})."),
        (["open", *(f"2023-12-{day}" for day in range(11, 16))] * (N // 6), "c holds text, such as 'open': each value"),
        (TITLE, "Columns that give sex away by themselves, most first: c (100%) (so often a guess from the column is"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_column(values, said):
    found = said_of("c", ff.Table(rows(c=values), sensitive="sex"))
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    "values",
    [
        [f"0{v % 50:03d}" for v in range(N)],  # codes
        np.linspace(0, 1, N),  # measurements all differ
        ["a", "b", "3"] * (N // 3),
        ["1.2.3", "1.10.12", "10.0.0.1"] * (N // 3),  # versions and addresses are not dates
        np.where(np.arange(N) % 8, "Dr", TITLE),  # tells little
    ],
)
def test_what_nothing_is_said_of(values):
    assert said_of("c", ff.Table(rows(c=values), sensitive="sex")) == []


def test_constants_are_named_together():
    table = ff.Table(rows(**{f"c{i}": [i] * N for i in range(10)}), sensitive="sex")
    (found,) = find_problems(table)
    assert "c0, c1, c2, c3, c4, c5, c6, c7 and 2 more" in found
    assert "'c9'" in found, "what to drop is named whole"


def test_columns_that_name_the_rows_are_found_before_a_table_refuses_them():
    frame = rows(mail=[f"{v}@x" for v in range(N)], person=[f"p{v}" for v in range(N)])
    found = find_names(frame, ["sex", "person"])
    assert list(found) == ["mail"]
    assert "Drop it (drop=['mail']), or make it the identifier (identifier='mail')" in found["mail"]


def test_a_sensitive_column_of_numbers_is_to_be_cut():
    table = ff.Table(rows(age=np.arange(N) % 50 + 20), sensitive="age")
    (said,) = said_of("age", table)
    assert "(cuts={'age': [44.5]})" in said
    with pytest.raises(
        ff.DataError, match=r"50 different values.*\(cuts=\{'age': \[44\.5\]\}\)\. The smallest, age = \d+, has 24"
    ):
        ff.share(table)
    cut = ff.Table(rows(age=np.arange(N) % 50 + 20), sensitive="age", cuts={"age": [44.5]})
    assert said_of("age", cut) == []
    check_groups(cut)
    check_groups(ff.Table(rows(code=np.arange(N) % 10), sensitive="code"))  # few codes, with persons enough


def test_groups_that_are_too_small_and_what_helps():
    level = ["a"] * 700 + ["b"] * 480 + ["c"] * 15 + ["d"] * 5
    (said,) = said_of("level", ff.Table(rows(level=level), sensitive="level"))
    assert "too few persons for a distance of 0.3 in 2 groups: d (5), c (15)." in said
    least = int(said.split("merge_small=")[1].rstrip(")."))
    with pytest.warns(ff.DataWarning, match="'other'"):
        merged = ff.Table(rows(level=level), sensitive="level", merge_small=least)
    assert said_of("level", merged) == []


def test_a_small_group_that_raises_the_target_is_named():
    """Merging is proposed only where several groups are small."""
    level = ["a"] * 700 + ["b"] * 440 + ["c"] * 60
    (said,) = said_of("level", ff.Table(rows(level=level), sensitive="level"))
    assert re.search(
        r"too few persons for a distance of 0.1 in 1 group: c \(60\)\. That takes about \d+ persons of each", said
    )
    assert "merge_small" not in said
    level = ["a"] * 650 + ["b"] * 400 + ["c"] * 60 + ["d"] * 90
    (said,) = said_of("level", ff.Table(rows(level=level), sensitive="level"))
    assert "in 2 groups: c (60), d (90)" in said
    assert said.endswith("Small groups can be merged into one (merge_small=91).")


def test_persons_are_counted_and_not_rows():
    frame = rows(level=["a", "b"] * (N // 2), person=[f"{v % 20}" for v in range(N)])
    table = ff.Table(frame, sensitive="level", identifier="person", drop="sex")
    (said,) = said_of("level", table)
    assert "a (10), b (10)" in said


def test_the_best_bounds_are_what_a_release_plans():
    """What is foreseen, what is taken by default and what is certified are one calculation."""
    table = ff.Table(rows(person=np.arange(N)), sensitive="sex", identifier="person")
    plans, default = best_bounds(table)
    assert ([plan.target for plan in plans], default) == ([0.1, 0.15, 0.2, 0.3], 0.1), "not 0.05: too few persons"
    for plan in plans:
        assert plan.known_half <= plan.target
        assert plan == plan_cells([N / 2, N / 2], plan.target, 0.01)
        release = ff.Release(target=plan.target, output="cell").fit(table)
        assert release.plan_ == plan
        assert plan.n_cells + 1 >= release.n_cells_ >= 0.7 * plan.n_cells, "uneven leaves are a few more, or fewer"
        stated = ff.certify(release, table, target=plan.target)
        assert stated.known_half <= plan.target
        assert (stated.find("population") is None) == (plan.population is None)
        if plan.population is not None:
            assert stated.cell_upper <= plan.target
            assert stated.find("population").met
        assert stated.status == "CERTIFIED"


def test_nothing_is_foreseen_for_a_handful_of_persons():
    handful = pd.DataFrame({"x": np.arange(20) / 7, "sex": ["f", "m"] * 10})
    assert best_bounds(ff.Table(handful, sensitive="sex"))[0] == []


def test_columns_that_give_the_group_away_are_listed_most_first_and_copies_of_the_label():
    """Dummies of the sensitive attribute, which one group in ten has, and the opposite of the label."""
    rng = np.random.default_rng(5)
    white = (rng.random(N) < 0.85).astype(int)
    black = np.where(rng.random(N) < 0.7, 1 - white, 0)
    approve = rng.integers(0, 2, N)
    frame = rows(black=black, reject=1 - approve, weak=white ^ (rng.random(N) < 0.25), white=white, approve=approve)
    table = ff.Table(frame.drop(columns="sex"), sensitive="white", label="approve")
    found = find_problems(table)
    assert "give white away by themselves, most first: black (8" in found[0]
    assert "weak (7" in found[0]
    assert "drop=['black', 'weak']" in found[0]
    assert found[1].startswith("reject tells the label approve for 100% of the rows")

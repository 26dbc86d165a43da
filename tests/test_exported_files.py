"""What `share` writes for other tools says what the file holds: drawn rows, or a person's own cell."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from known_tables import people

import fairflows as ff
from fairflows.exports import croissant
from fairflows.report.verdict import consequences, not_covered

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.filterwarnings("ignore:.* of these rows are of persons of the table that was released"),
]


def rows() -> pd.DataFrame:
    return people(1500)[["age", "town", "sex", "person"]]


@pytest.mark.parametrize("output", ["row", "cell"])
def test_only_drawn_rows_are_called_synthetic(output, tmp_path):
    table = ff.Table(rows(), sensitive="sex", identifier="person")
    ff.share(table, target=0.3, quick=True, output=output).save(tmp_path / "out")
    for name in ("card.md", "croissant.json", "spdx.json", "report-public.html"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        text = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)  # which knows certificates of every kind
        says_drawn = [word for word in ("synthetic", "drawn from", "random draw", "nobody's own") if word in text]
        assert bool(says_drawn) == (output == "row"), (name, says_drawn)
    limits = json.loads((tmp_path / "out" / "croissant.json").read_text(encoding="utf-8"))["rai:dataLimitations"]
    assert ("one person" in limits[0]) == (output == "cell")


def test_nothing_is_promised_of_a_table_beyond_its_target(tmp_path):
    """The sentences of a failed release are no praise: it may tell the group."""
    table = ff.Table(rows(), sensitive="sex", identifier="person")
    release = ff.Release(n_cells=16, output="cell").fit(table)
    certificate = ff.certify(release, table, target=0.001)
    assert certificate.status == "NOT_MET"
    text = json.dumps(croissant(certificate, {"shared.csv": release.transform(table)}, {"shared.csv": "0" * 64}))
    assert "not reveal" not in text
    assert "nearly the same share" not in text


def test_card_and_metadata_say_what_is_not_covered(tmp_path):
    """They travel without the report, and a promise without its limits is read as more than it is."""
    table = ff.Table(rows(), sensitive="sex", identifier="person")
    shared = ff.share(table, target=0.3, quick=True).save(tmp_path / "out")
    cases = not_covered(shared.certificate)
    assert len(cases) >= 3
    card, metadata = ((tmp_path / "out" / name).read_text(encoding="utf-8") for name in ("card.md", "croissant.json"))
    assert "Not covered:\n\n" + "\n".join(f"- {case}" for case in cases) in card
    assert json.loads(metadata)["rai:dataLimitations"][1:] == [f"Not covered: {case}." for case in cases]


@pytest.mark.parametrize(("label", "second"), [(["ja", "nein"], "nein"), ([0, 1], "1")])
def test_the_report_says_of_which_class_a_score_is_the_probability(label, second):
    """Of 'ja' and 'nein' the score is that of 'nein': the name of its column does not tell."""
    frame = rows().assign(granted=lambda r: np.where(r["age"] > 40, *label), fee=lambda r: r["age"] * 1.5)
    shared = ff.share(
        ff.Table(frame, sensitive="sex", label=["granted", "fee"], identifier="person"), target=0.3, quick=True
    )
    page = shared.report.to_html(public=True)
    assert f"granted_score is the probability of granted = {second}, given the cell." in page
    assert "fee_score is" not in page, "the mean of a number"
    given_yes, given_no = (shared.table["granted_score"][shared.table["granted"].astype(str) == str(v)] for v in label)
    assert given_no.mean() > given_yes.mean()


def test_the_card_counts_the_rows_of_the_file(tmp_path):
    """Of a file that is larger than memory only a sample is in the hands of `share`."""
    whole = tmp_path / "whole.csv"
    rows().to_csv(whole, index=False)
    sample = ff.Table.read(whole, sensitive="sex", identifier="person").take(range(900))
    ff.share(sample, target=0.3, quick=True).save(tmp_path / "out", whole=whole)
    assert "1,500 rows drawn from cells" in (tmp_path / "out" / "card.md").read_text(encoding="utf-8")
    report = (tmp_path / "out" / "report-public.html").read_text(encoding="utf-8")
    assert "All 1,500 rows of the file are released" in report
    assert "900 rows, all of them released" not in report


@pytest.mark.filterwarnings("ignore:Values that are missing where none was")
def test_the_public_report_tells_no_number_of_fewer_than_ten_rows(tmp_path):
    """A label of numbers has no rate for each of them: that would print everybody's wage beside the group."""
    rng = np.random.default_rng(1)
    frame = rows().assign(wage=rng.normal(3000, 500, 1500).round(2), seen=rng.integers(0, 9, 1500).astype(float))
    frame.loc[[4, 5], "seen"] = np.nan
    table = ff.Table(frame, sensitive="sex", identifier="person", label="wage")
    assert list(table.summary()) == ["rows", "share", "mean wage"]
    ff.share(table, target=0.3, quick=True).save(tmp_path / "number")
    report = (tmp_path / "number" / "report-public.html").read_text(encoding="utf-8")
    assert not [wage for wage in frame["wage"] if str(wage) in report]
    assert "&#39;seen&#39; (under 10)" in report
    assert '<td class="n" data-name="missing">under 10</td>' in report


@pytest.mark.parametrize("n_rare", [5, 200])
def test_the_public_report_has_no_rates_where_a_class_is_rare(n_rare, tmp_path):
    paid = np.random.default_rng(2).permutation(["late"] * n_rare + ["yes", "no"] * 750)[:1500]
    paid[:n_rare] = "late"
    table = ff.Table(rows().assign(paid=paid), sensitive="sex", label="paid", identifier="person")
    ff.share(table, target=0.3, quick=True).save(tmp_path / "out")
    texts = [(tmp_path / "out" / name).read_text(encoding="utf-8") for name in ("report.html", "report-public.html")]
    assert ["P(paid = late)" in text for text in texts] == [True, n_rare >= 100]


def test_rates_in_the_shared_table_are_within_the_number_that_the_report_states():
    """Rates of rules on drawn rows differ by more than the cells do: each group is one draw."""
    table = ff.Table(rows(), sensitive="sex", identifier="person")
    shared = ff.share(table, target=0.3, quick=True)
    stated = float(re.search(r"rates differ by at most ([0-9.]+) ", consequences(shared.certificate)[0])[1])
    drawn, is_f = shared.release.draw(shared.release.cells(table)), (table.a == "f").to_numpy()
    rules = [(drawn["age"] >= age).to_numpy() for age in range(20, 80)]
    gaps = [abs(rule[is_f].mean() - rule[~is_f].mean()) for rule in rules]
    assert max(gaps) > shared.certificate.table_distance
    assert max(gaps) <= stated < 1

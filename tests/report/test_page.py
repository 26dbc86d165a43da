"""The report: what it says is what the certificate says, whatever the data are called."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import escape, unescape

import pytest

from fairflows import Certificate, Report
from fairflows.report.numbers import at_least, at_most
from fairflows.report.verdict import (
    achieved,
    consequences,
    leaving_out_would_do,
    light,
    not_covered,
    remedies,
    statement_rows,
    verdict,
)
from fairflows.report.worth_words import good_for

pytestmark = pytest.mark.usefixtures("few_trees")

EVIL = "<script>alert(1)</script>"


def statement(about, by, distance, **values):
    return {"about": about, "by": by, "distance": distance, **values}


def certificate(*, cell=0.08, odds=(0.11, 0.2), model=0.02, model_odds=(), attack=0.004, counts=None, **values):
    """Plain values of a certificate with these bounds; None for those that it does not state."""
    found = []
    if cell is not None:
        found = [statement("population", "held-out", cell, observed=0.03, delta=0.03, counts=counts)]
        found += [statement("population", "held-out", d, given=str(y), delta=0.01) for y, d in enumerate(odds)]
    if model is not None:
        found.append(statement("model", "model", model, observed=0.01, delta=0.001))
        found += [statement("model", "model", d, given=str(y), delta=0.001) for y, d in enumerate(model_odds)]
    if attack is not None:
        found.append(statement("attack", "adversary", attack, delta=0.05, source="boosted trees"))
        found += [statement("density", "adversary", d, group=g, delta=0.05) for g, d in (("f", 0.01), ("m", 0.0))]
    plain = {
        "status": "CERTIFIED", "statements": found, "sensitive": ["sex"], "released": "cell", "unit": "person",
        "issued": "2026-03-01",
        "n": {"f": 900, "m": 1100}, "delta": 0.05, "model": "ab12", "rows": "cd34", "seed": 0, "n_draws": 1000,
        "assumptions": [{"key": "one row each", "text": "One row per person."}], "versions": {"fairflows": "0.1.0"},
        "target": 0.1, "n_cells": 4, "look": 1, "seal": "ef56", "most_rows": 1,
        "released_files": {"shared.csv": 32 * "aa"},
    }  # fmt: skip
    return {**plain, **values}


def stated(**values):
    return Certificate.from_dict(certificate(**values))


def counts(name="f", **values):
    """The counts of 900 and 1,100 persons in three cells, one of which is merged."""
    whole = {
        "n": {name: 900, "m": 1100}, "cells": [0, 2],
        "counts": {name: [400, 470], "m": [560, 520]}, "merged": {name: 30, "m": 20},
    }  # fmt: skip
    return {**whole, **values}


def contents(name="town", **values):
    """A report's contents in which everything that comes from data is called `name`."""
    groups = [{"name": name, "rows": 10, "share": 0.5, "rates": [0.5]} for _ in range(2)]
    plain = {
        "made": "2026-01-01",
        "certificate": certificate(
            n={name: 900, "m": 1100}, assumptions=[{"key": "noise", "text": name}], counts=counts(name),
            released_files={name: 32 * "aa"}, labels=[name], sensitive=[name],
            about={"issuer": name, "contact": name, "purpose": name, "recipient": name,
                   "population": {"period": name, "place": name, "frame": name}},
        ),
        "audit": {
            "best": "boosted trees", "delta": 0.05, "n": {name: 900, "m": 1100},
            "attacks": [{"adversary": "boosted trees", "box": "open", "groups": f"{name} / m", "lower": 0.004,
                         "balanced accuracy": 0.502, "validation": 0.01, "persons": 800}],
        },
        "data": {
            "name": name, "rows": 2000, "sensitive": name, "labels": [name], "split": "", "groups": groups,
            "group_names": {name: name, "m": "men"}, "rate_names": [f"P({name} = 1)"],
            "notes": [name], "public_notes": [name], "first": [name],
            "rates_are_public": True,
            "columns": [{"name": name, "kind": "categorical", "values": 3, "missing": 0, "range": name}],
        },
        "settings": {"FairFlow": name},
    }  # fmt: skip
    return {**plain, **values}


def worth_of(name):
    """The worth of a table with one column."""
    shape = {"name": name, "values": ["a", "b", "c"], "real": [0.4, 0.3, 0.3], "shared": [0.4, 0.4, 0.15]}
    rows = {"columns": {name: 0.15}, "shapes": [shape], "correlations": None, "k_marginal": [0.9, 1.0], "detection": 1}
    told = {"columns": [{"name": name, "told": 0.42}], "sensitive": {"name": "sex", "told": 0.031}}
    return {"labels": [], "rows": rows, "n": 9, **told}


def short(**values):
    """A report's contents with the certificate alone."""
    return contents(audit=None, **values)


@pytest.fixture(scope="module")
def whole():
    return Report(contents())


@pytest.fixture(scope="module")
def page(whole):
    return whole.to_html()


@pytest.fixture(scope="module")
def public_page(whole):
    return whole.to_html(public=True)


def test_everything_that_comes_from_data_is_escaped():
    page = Report(contents(EVIL, usefulness=worth_of(EVIL))).to_html()
    assert "<script" not in page
    assert page.count(escape(EVIL)) > 20


def test_the_public_page_runs_its_own_script_alone():
    """Texts of the certificate stand in the page as JSON, and end no element; the policy names the script's hash."""
    page = Report(contents("</script><script>alert(1)</script>")).to_html(public=True)
    assert page.count("<script") == page.count("</script") == 3
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'" in page
    held = re.search(r'<script type="application/json" id="certificate">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(held)["sensitive"] == ["</script><script>alert(1)</script>"]


def test_odd_names_are_text():
    name = '$x$ & "quoted" {{ 7 * 7 }} a_b^2 město 年齢 ' + "x" * 200
    page = Report(contents(name)).to_html()
    assert str(escape(name, quote=False)) in page.replace("&#34;", '"')
    assert "49" not in page


def test_bounds_are_bars_on_one_scale_and_nothing_is_fetched(page):
    bars = re.findall(r'<td class="scale"><span style="width:([^%]*)%;background:[^"]*"></span>(.*?)</td>', page)
    assert [float(width) for width, _ in bars] == [3.2, 64.0], "an attack of .004 and a bound of .08, up to .125"
    assert {target for _, target in bars} == {'<i style="left:80.0%"></i>'}
    assert not re.search(r"(href|src)=", page)
    assert "default-src 'none'" in page


def test_columns_stand_beside_shared_ones_inside_alone():
    shown = Report(short(usefulness=worth_of("town")))
    assert (
        'title="c: 30.0 %, shared 15.0 %"><i style="height:75.0%"></i><i style="height:37.5%"></i>' in shown.to_html()
    )
    assert "shares differ by 15.0 %" in shown.to_html()
    assert "original beside shared" not in shown.to_html(public=True)


def test_a_public_report_shows_no_range_of_a_column(page, public_page):
    assert "<th>range</th>" in page
    assert "internal</span>" in page
    assert "<th>range</th>" not in public_page
    assert "internal</span>" not in public_page


ABOUT = {
    "issuer": "Office of Statistics", "contact": "data@office.example", "purpose": "teaching",
    "recipient": "students, who know nobody in it", "valid_until": "2027-12-31",
    "population": {"period": "2024", "place": "Ulm", "frame": "the register"},
}  # fmt: skip
TARGET = "at most 55.0 of 100 guesses between two groups are right (Δ ≤ 0.1)"


def first_box(made):
    return re.search(r'<div class="verdict">(.*?)</div>', made, re.DOTALL)[1]


@pytest.mark.parametrize("public", [False, True])
def test_the_first_box_says_who_issues_it_for_what_and_until_when(public):
    stated = certificate(n={"town": 900, "m": 1100}, about=ABOUT)
    lines = dict(
        re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", first_box(Report(short(certificate=stated)).to_html(public=public)))
    )
    assert lines == {
        "target": TARGET, "issued": "2026-03-01", "issuer": "Office of Statistics", "contact": "data@office.example",
        "purpose": "teaching", "recipient": "students, who know nobody in it", "population": "2024, Ulm, the register",
        "valid until": "2027-12-31",
    }  # fmt: skip
    bare = Report(short(certificate=certificate(n={"town": 900, "m": 1100}))).to_html(public=public)
    lines = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", first_box(bare)))
    assert lines == {"target": TARGET, "issued": "2026-03-01", "valid until": "until refuted"}


def test_the_headline_is_the_first_statement():
    assert statement_rows(of_table())[0]["name"] == "This table"
    made = Report(short(certificate={**of_table(n={"town": 900, "m": 1100}).to_dict()})).to_html()
    names = re.findall(r'<th scope="row" class="keep">(.*?)</th>', made)
    assert names == ["This table", "Persons to come"]


def test_what_is_not_known_is_left_out():
    bare = Report(short()).to_html()
    assert "Not attacked" in bare
    assert "What a shared row tells" not in bare


def test_the_page_prints_the_numbers_of_the_json(page):
    for text in ("Δ ≤ 0.080", "Δ ≤ 0.020", "Δ ≥ 0.004", "54.0 %", "ab12", "cd34", "ef56", "900 persons of group town"):
        assert text in page
    assert "computed once, on 800 other persons" in page, "of very many persons an adversary is judged on a part"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, ["more than 54.0 % of the time", "50.0 % of the time", "probability of 3.0 %"]),
        ({"n": {"a": 1, "b": 1, "c": 1}}, ["tells any two of the groups apart correctly more than 54.0 %"]),
        ({"status": "MODEL_ONLY", "cell": None, "released": "latent"}, ["not as a guarantee", "51.0 %"]),
        ({"status": "REFUTED", "attack": 0.5}, ["Do not rely", "0.500", "0.020"]),
        ({"status": "NOT_MET"}, ["Do not share this as it is", "does not come down to the target: it is Δ ≤ 0.080."]),
        ({"status": "NOT_MET", "target": None, "cell": 1.0}, ["Nothing is promised: no bound is below 1"]),
        ({}, ["New persons are covered: the 2,000", "trained on or chosen by are not covered"]),
        ({"labels": ["income", "wage"]}, ["From a released row, income and wage included, nobody"]),
    ],
)
def test_the_verdict_in_plain_words(values, said):
    text = " ".join(verdict(stated(**values)))
    for part in said:
        assert part in text


@pytest.mark.parametrize(
    ("values", "colour", "says"),
    [
        ({}, "green", "within the target"),
        ({"target": None}, "amber", "no target was set"),
        ({"status": "MODEL_ONLY"}, "amber", "only if the estimated densities are the truth"),
        ({"status": "NOT_MET"}, "red", "no bound is low enough to promise"),
        ({"status": "REFUTED"}, "red", "an actual adversary beats the model-based bound"),
    ],
)
def test_the_light_has_a_colour_and_words(values, colour, says):
    made = certificate(**values)
    assert light(stated(**values))["colour"] == colour
    assert light(stated(**values))["text"].startswith(colour.capitalize())
    assert says in light(stated(**values))["text"]
    shown = unescape(Report(short(certificate={**made, "n": {"town": 900, "m": 1100}})).to_html())
    assert f'<body class="{colour}">' in shown
    assert (
        shown.index(light(stated(**values))["text"])
        < shown.index(verdict(stated(**values))[0])
        < shown.index("<section>")
    )


def test_what_holds_under_a_model_only_is_in_the_appendix(page):
    main, appendix = page.split("Appendix: what holds only under a model")
    for text in ("Δ ≤ 0.020", "The estimated density of f is at least this far from the truth."):
        assert text in appendix
        assert text not in main
    assert "<section>" not in appendix, "it is the last section"
    assumed = "The model-based bound takes the estimated densities for the truth."
    model_only = certificate(n={"town": 900, "m": 1100}, status="MODEL_ONLY", cell=None,
                             assumptions=[{"key": "densities", "text": assumed}])  # fmt: skip
    main, appendix = Report(short(certificate=model_only)).to_html().split("Appendix: ")
    assert assumed in appendix
    assert assumed not in main
    assert "model-based" in appendix.split("What would follow")[1]


def test_with_three_groups_a_pair_is_called_a_pair():
    three = stated(n={"a": 800, "b": 700, "c": 600})
    found = {row["name"]: row["accuracy"] for row in statement_rows(three)}
    assert found["True distribution"] == "≤ 54.0 % between two groups, equally likely"
    assert found["Attack"] == "≥ 50.2 % between two groups, equally likely"
    assert statement_rows(stated())[0]["accuracy"] == "≤ 54.0 %"


def test_nothing_follows_from_a_refuted_model():
    refuted = stated(status="REFUTED", cell=None, model_odds=[0.1])
    assert consequences(refuted) == []
    by_model = consequences(replace(refuted, status="MODEL_ONLY"))
    assert "at most 0.100 (model-based)" in by_model[2]


def test_statements_and_consequences():
    names = ["True distribution", "Model", "Attack", "Density of f", "Density of m"]
    assert [row["name"] for row in statement_rows(stated())] == names
    assert "blind guess" in statement_rows(stated(attack=0.0))[2]["says"]
    assert "Probability of error: 3.0 %" in statement_rows(stated())[0]["says"]
    lines = consequences(stated())
    assert "at most 0.080 (certified)" in lines[0]
    assert "at least 40.0 %" in lines[1]
    assert "at most 0.200 (certified)" in lines[2]
    assert "not guaranteed" in consequences(stated(cell=0.3))[1]
    assert consequences(stated(cell=None, model=None)) == consequences(stated(cell=1.0)) == []
    assert [at_most(d) for d in (None, 0.0001, 0.0, 0.25, 0.0571)] == ["–", "0.001", "0.000", "0.250", "0.058"]
    assert [at_least(d) for d in (None, 0.0577)] == ["–", "0.057"], "never what was not proved"


def test_the_command_quotes_the_name_of_a_file():
    odd = certificate(n={"town": 900, "m": 1100}, released_files={"a b;rm.csv": 32 * "aa"})
    assert "fairflows check certificate.json 'a b;rm.csv'" in unescape(Report(short(certificate=odd)).to_html())


def test_saving_and_what_a_report_is_made_of(page, tmp_path):
    Report(json.loads(json.dumps(contents()))).save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page
    assert Report(short())._repr_html_().startswith("<iframe")


def test_what_a_row_still_tells_has_a_bar_and_a_share_for_every_column():
    page = Report(short(usefulness=worth_of(EVIL))).to_html()
    pattern = r'class="name">([^<]*)</th><td class="bar"><span style="width:([^%]*)%"></span> (\d+ %)'
    assert re.findall(pattern, page) == [(escape(EVIL), "33.6", "42 %"), ("sex", "2.5", "3 %")]


def of_table(distance=0.011, population=0.09, **values):
    """A certificate with a statement about a table, and one about persons to come."""
    known = {"0.01": 0.02, "0.1": 0.04, "0.5": 0.083}
    stated = [statement("table", "counted", distance, observed=distance, known=known, met=distance < 0.1)]
    if population is not None:
        stated.append(statement("population", "blocks", population, delta=0.01, met=population < 0.1))
    plain = certificate(cell=None, model=None, attack=None, look=0, **values)
    return Certificate.from_dict({**plain, "statements": stated})


def test_the_table_and_persons_to_come_are_said_in_plain_words():
    text = " ".join(achieved(of_table()))
    assert (
        "one of its 2,000 rows, and was not told sex of rows in it, is not expected to guess sex right more than 50.6 %"
        in text
    )
    assert "Persons to come, whose rows are encoded later: at most 54.5 % of the time." in text
    assert "which is above the target" in " ".join(achieved(of_table(population=0.2)))
    assert "nothing is said" in " ".join(achieved(of_table(population=None)))
    three = of_table(n={"a": 900, "b": 600, "c": 500})
    assert "tell two groups of sex apart, even the worst pair, more than 50.6 %" in " ".join(achieved(three))
    assert any("a random half: 54.2 %" in line for line in not_covered(of_table()))
    assert any("merged" in line for line in not_covered(of_table(), merged=True))


def test_a_missed_target_names_the_group_and_what_each_remedy_gives():
    said = remedies(of_table(0.2, status="NOT_MET", n={"a": 2_000, "b": 90, "c": 60}))
    assert "c, with 60 persons" in said[0]
    assert said[1].startswith("As it is: target 0.3 with 2 cells")
    assert "With c and b as one group (merge_small=91): target 0.3 with 6 cells" in said[2]
    assert "four times as many persons: target 0." in said[3]
    assert remedies(of_table()) == []


def test_it_is_said_where_leaving_the_column_out_would_do():
    assert "Leaving out the column sex would do" in leaving_out_would_do(of_table(), {"balanced_accuracy": 0.515})[0]
    assert "right about 51.5 % of the time" in leaving_out_would_do(of_table(), {"balanced_accuracy": 0.515})[0]
    assert leaving_out_would_do(of_table(), {"balanced_accuracy": 0.85}) == []
    assert leaving_out_would_do(of_table(), None) == []


def useful(**rules):
    right = {"right": 0.8, "auc": 0.85, "error": None, "gap": 0.1, "gap_chance": 0.02}
    label = {"name": "pay", "classes": ["0", "1"], "blind": 0.75,
             "rules": {name: {**right, **rule} for name, rule in rules.items()},
             "best": {"0": 0.81, "0.1": 0.83}}  # fmt: skip
    return {"labels": [label], "rows": None, "columns": [], "sensitive": {}, "n": 9, "n_learnt": 9}


def test_what_a_table_is_good_for():
    said = " ".join(good_for(useful(raw={}, trained={"auc": 0.84}, score={}, row={"right": 0.77})))
    assert "with an AUC of 0.840 (learnt from original rows: 0.850)" in said
    assert "is right for 80.0 % of other persons (by the drawn columns 77.0 %, blind guess: 75.0 %)" in said
    assert "about 81.0 % if it told nothing of the groups, and about 83.0 % within Δ = 0.100" in said
    above = " ".join(good_for(useful(raw={}, score={"right": 0.82}, row={})))
    assert "The best that any table could give is about 83.0 % within Δ = 0.100" in above, (
        "no limit below what is reached"
    )
    poor = " ".join(good_for(useful(raw={}, trained={}, score={"right": 0.74}, row={})))
    assert "no better than a blind guess: train on the table" in poor
    trained = not_covered(of_table(), useful(raw={"gap": 0.18}, trained={"gap": 0.17}))
    assert (
        "differ between groups by up to 17.0 ± 2.0 points (learnt from original rows: 18.0 ± 2.0 points; 95 %"
        in trained[-1]
    )


def test_columns_that_a_row_tells_nothing_of_are_counted_not_listed():
    columns = [{"name": name, "told": told} for name, told in (("age", 0.24), ("state", 0.004), ("region", 0.0))]
    said = good_for({"labels": [], "rows": None, "columns": columns})[-1]
    assert said.endswith("removes: age 24 %, 0 % of 2 other columns.")

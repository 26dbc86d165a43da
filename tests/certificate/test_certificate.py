"""A certificate survives JSON, shows what it says, and its seal shows when it was changed."""

import json
from dataclasses import fields, replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

from fairflows import Certificate
from fairflows.certificate.about import About, Population
from fairflows.certificate.certificate import Assumption
from fairflows.certificate.statements import FOUND_BY, Statement, undisclosed_statement
from fairflows.report.statement_words import STATEMENTS

KEY = b"secret"
STATED = [f.name for f in fields(Certificate) if f.name != "unchecked"]


def stated(about, by, distance, **values):
    return Statement(about=about, by=by, distance=distance, **values)


@pytest.fixture
def certificate() -> Certificate:
    return Certificate(
        status="CERTIFIED",
        statements=(
            stated("population", "held-out", 0.0340, observed=0.01, delta=0.0304, met=True),
            stated("population", "held-out", 0.06, given="0", observed=0.01, delta=0.0152),
            stated("population", "held-out", 0.11, given="1", observed=0.02, delta=0.0152),
            stated("model", "model", 2e-12, observed=1e-17, met=True),
            stated("attack", "adversary", 0.0, delta=0.05, source="boosted trees"),
            stated("density", "adversary", 0.02, group="<b>women</b>", delta=0.05),
            stated("density", "adversary", 0.01, group="men", delta=0.05),
        ),
        sensitive=("<i>sex</i>", "age"),
        released="cell",
        labels=("income",),
        unit="person",
        issued="2026-03-01",
        about=About(issuer="Office", population=Population(period="2025", place="Ulm"), valid_until="2027-12-31"),
        previous=("ef" * 32,),
        n={"<b>women</b>": 4913, "men": 10147},
        delta=0.05,
        assumptions=(
            Assumption("independent", "Held-out persons are independent draws."),
            Assumption("one row each", "One row per person & no more."),
        ),
        model="ab" * 16,
        rows="cd" * 16,
        seed=0,
        n_draws=1000,
        versions={"fairflows": "0.1.0"},
        target=0.05,
        n_cells=16,
        look=2,
    ).sealed(KEY)


def with_statement(values, place, **changes):
    statements = [dict(s) for s in values["statements"]]
    statements[place].update(changes)
    return {**values, "statements": statements}


def test_json_loses_nothing(certificate):
    assert Certificate.from_json(certificate.to_json()) == certificate
    assert set(json.loads(certificate.to_json())) == {"format", *STATED}


def test_json_of_another_format_is_refused(certificate):
    values = json.loads(certificate.to_json())
    with pytest.raises(ValueError, match="'format' must be 4; got 1"):
        Certificate.from_json(json.dumps({**values, "format": 1}))
    with pytest.raises(ValueError, match="no field 'unchecked'"):
        Certificate.from_json(json.dumps({**values, "unchecked": False}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "nested more than .* levels deep"),
        ("[]", "'format' must be 4; got None"),
        ("7", "'format' must be 4; got None"),
        ('{"format": 4}', "missing required field `status`"),
    ],
)
def test_a_text_that_is_no_certificate(text, message):
    with pytest.raises(ValueError, match=message):
        Certificate.from_json(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("status", "BLESSED"),
        ("status", None),
        ("sensitive", 3),
        ("sensitive", "sex"),
        ("sensitive", [3]),
        ("released", "cellar"),
        ("released", ["cell"]),
        ("labels", "income"),
        ("labels", [1]),
        ("unit", "household"),
        ("unit", None),
        ("issued", 2026),
        ("about", "an office"),
        ("about", {"issuer": 7}),
        ("previous", "ef"),
        ("previous", [None]),
        ("columns", "age"),
        ("n", [1, 2]),
        ("n", {"a": "many"}),
        ("n", {"a": True}),
        ("seed", 1.5),
        ("sensitive", []),
        ("issued", "yesterday"),
        ("about", {"valid_until": "2027-02-30"}),
        ("previous", ["ef"]),
        ("most_rows", 0),
        ("look", -1),
        ("releases", -1),
        ("seed", -1),
        ("n_draws", 0),
        ("target", "0.1"),
        ("target", 1.5),
        ("target", -0.1),
        ("assumptions", [1]),
        ("assumptions", ["independent"]),
        ("statements", {}),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused(certificate, name, value):
    values = json.loads(certificate.to_json())
    with pytest.raises(ValueError, match=rf"cannot state {name}\S* = "):
        Certificate.from_json(json.dumps({**values, name: value}))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("distance", -0.1, "distance = -0.1: expected `float` >= 0.0"),
        ("distance", 1.01, "distance = 1.01: expected `float` <= 1.0"),
        ("distance", "0.01", "distance = '0.01': expected `float`, got `str`"),
        ("distance", None, "distance = None: expected `float`, got `null`"),
        ("observed", 2, "observed = 2: expected `float` <= 1.0"),
        ("known_half", -1, "known_half = -1: expected `float` >= 0.0"),
        ("p_value", 2, "p_value = 2: expected `float` <= 1.0"),
        ("delta", None, "delta = None: expected `float`, got `null`"),
        ("about", "gossip", "about = 'gossip': invalid enum value"),
        ("law", "crowd", "law = 'crowd': invalid enum value"),
        ("counts", [], r"counts = \[\]: expected `object | null`"),
        ("counts", {"n": {}}, r"counts = {'n': {}}: object missing required field `cells`"),
        ("blocks", {"men": [1, 2.5]}, r"blocks\[...\]\[1\] = {'men': \[1, 2.5\]}: expected `int`, got `float`"),
        ("blocks", [1], r"blocks = \[1\]: expected `object`"),
    ],
)
def test_a_statement_of_the_wrong_kind_is_refused(certificate, name, value, says):
    """The field, what came, and the rule."""
    values = with_statement(json.loads(certificate.to_json()), 0, **{name: value})
    with pytest.raises(ValueError, match=rf"a certificate cannot state statements\[0\]\.{says}"):
        Certificate.from_json(json.dumps(values))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"by": "magic"}, "'population' by = 'magic'"),
        ({"by": "model"}, "'population' by = 'model'"),
        ({"group": "men"}, "'population' of the group 'men'"),
    ],
)
def test_a_statement_that_no_version_makes_is_refused(certificate, changes, says):
    values = with_statement(json.loads(certificate.to_json()), 0, **changes)
    with pytest.raises(ValueError, match=f"cannot state {says}"):
        Certificate.from_json(json.dumps(values))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_refused(certificate, number):
    """JSON of Python has them; no other reader takes it, and no bound is compared with them."""
    text = certificate.to_json().replace('"distance": 0.034', f'"distance": {number}')
    with pytest.raises(ValueError, match=f"not JSON \\({number} is no finite number\\)"):
        Certificate.from_json(text)


def test_fields_that_no_certificate_has_are_refused_wherever_they_are(certificate):
    values = json.loads(certificate.to_json())
    about = values["about"]
    for changed in (
        {**values, "better": 0},
        {**values, "about": {**about, "better": 0}},
        {**values, "about": {**about, "population": {"better": 0}}},
        with_statement(values, 1, better=0),
        {**values, "assumptions": [{"key": "", "text": "", "better": 0}]},
    ):
        with pytest.raises(ValueError, match=r"a certificate has no field '[a-z.]*better'"):
            Certificate.from_json(json.dumps(changed))


def test_nothing_is_stated_twice(certificate):
    values = with_statement(json.loads(certificate.to_json()), 2, given="0")
    with pytest.raises(ValueError, match="cannot state the same thing twice"):
        Certificate.from_json(json.dumps(values))


def test_short_names_are_those_of_the_statements(certificate):
    c = certificate
    assert (c.cell_upper, c.model_upper, c.attack_lower) == (0.034, 2e-12, 0.0)
    assert c.cell_odds_upper == {"0": 0.06, "1": 0.11}
    assert c.density_gap_lower == {"<b>women</b>": 0.02, "men": 0.01}
    assert c.headline is c.statements[0]
    assert c.find("attack").source == "boosted trees"
    assert c.find("population", given="1").distance == 0.11


def test_bounds_are_printed_on_the_safe_side(certificate):
    """.057727 is no bound of .0577, and an attack that proves .05779 does not prove .0578."""
    shown = replace(certificate, statements=(
        stated("population", "held-out", 0.057727, observed=0.01, delta=0.03),
        stated("population", "held-out", 0.06001, given="0", observed=0.01, delta=0.03),
        stated("population", "held-out", 0.04441, law="person", observed=0.01, delta=0.03),
        stated("model", "model", 0.05777, observed=0.1, delta=0.001),
        stated("attack", "adversary", 0.05799, delta=0.05, source="boosted trees"),
        stated("density", "adversary", 0.01999, group="men", delta=0.05),
    ))  # fmt: skip
    for text in (repr(shown), shown._repr_html_().replace("&#x27;", "'")):
        for part in ("≤ 0.0578", "52.9 %", "Δ ≤ 0.0601", "Δ ≥ 0.0579", "Δ ≤ 0.0445", "≥ 0.0199", "at least 0.0002"):
            assert part in text
    exact = replace(certificate, statements=(stated("population", "held-out", 0.05, observed=0.01, delta=0.03),))
    assert "Δ ≤ 0.0500, adversary 52.5 %" in repr(exact), "what needs no rounding is not rounded"


@pytest.mark.parametrize(("n", "distance"), [(500, 0.5), (501, 0.501)])
def test_a_distance_without_counts_is_rounded_up_to_thousandths(n, distance):
    counts = np.array([[n, 500], [0, 1000]])  # n / (n + 500) apart
    assert undisclosed_statement("together", counts, ["f", "m"]).distance == distance


@pytest.mark.parametrize("name", [name for name in STATED if name != "seal"])
def test_the_seal_covers_every_field(certificate, name):
    value = getattr(certificate, name)
    others = {str: "x", int: 99, float: 0.123, dict: {"x": 0.5}, tuple: () if value else ("x",), type(None): 0.5}
    other = {**others, About: About(contact="x")}[type(value)]
    changed = replace(certificate, **{name: other})
    assert changed.sealed(KEY).seal != certificate.seal
    assert certificate.sealed(b"other key").seal != certificate.seal


def test_repr_says_what_about_what_and_under_which_assumptions(certificate):
    text = repr(certificate)
    for part in ("CERTIFIED: within the target, whatever the distribution is", "Δ ≤ 0.0340", "51.7 %", "boosted trees",
                 "4,913", "cell (16 cells) and income", "<i>sex</i> and age", "look 2 of these persons",
                 "2026-03-01", "Office", "2025, Ulm", "2027-12-31",
                 *(assumption.text for assumption in certificate.assumptions)):  # fmt: skip
        assert part in text
    assert max(len(line) for line in text.splitlines()[:-2]) < 140


def test_plot_shows_every_bound_and_the_target(certificate, changed):
    raised = changed(changed(certificate, "attack", distance=0.0109), "model", distance=0.1991)
    axes = raised.plot(before=0.7)
    assert [text.get_text() for text in axes.texts] == ["≤ 0.034", "≤ 0.200", "≥ 0.010", "≥ 0.700", "target"], (
        "rounded to the safe side"
    )
    assert len(axes.child_axes) == 1, "the scale of right guesses"
    given = axes.figure.add_subplot()
    three = replace(certificate, n={"a": 10, "b": 10, "c": 10}, target=None)
    assert three.plot(ax=given) is given
    assert given.child_axes == [], "of three groups, (1 + Δ)/2 is not how often a guess is right"
    assert "target" not in [text.get_text() for text in given.texts]
    plt.close("all")
    with pytest.raises(ValueError, match=r"before must be a distance in \[0, 1\]; got 70"):
        certificate.plot(before=70)


def test_a_statement_of_ones_own_takes_an_entry_of_each_table(certificate, monkeypatch):
    """A new kind of statement: `FOUND_BY` in certificate/statements.py, its words, and the function that makes it."""
    monkeypatch.setitem(FOUND_BY, "model", ("model", "by hand"))
    said = replace(STATEMENTS["model", "model"], text=lambda s, c: f"somebody reckons Δ ≤ {s.distance}")
    monkeypatch.setitem(STATEMENTS, ("model", "by hand"), said)
    own = Statement(about="model", by="by hand", distance=0.125)
    others = tuple(s for s in certificate.statements if s.about != "model")
    changed = replace(certificate, statements=(*others, own))
    assert "somebody reckons Δ ≤ 0.125" in repr(changed)
    assert Certificate.from_json(changed.to_json()).find("model") == own
    monkeypatch.undo()
    with pytest.raises(ValueError, match="cannot state 'model' by = 'by hand'"):
        Certificate.from_json(changed.to_json())

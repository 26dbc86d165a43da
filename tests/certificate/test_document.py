"""A certificate survives JSON, shows what it says, and its seal shows when it was changed."""

import json
from dataclasses import fields, replace

import matplotlib.pyplot as plt
import pytest

from fairflows.certificate.document import Certificate

KEY = b"secret"
STATED = [f.name for f in fields(Certificate) if f.name != "unchecked"]


@pytest.fixture
def certificate() -> Certificate:
    return Certificate(
        status="CERTIFIED",
        sensitive="<i>sex</i>",
        released=("cell", "label"),
        n={"<b>women</b>": 4913, "men": 10147},
        delta=0.05,
        spent={"cells": 0.0304, "model": 0.0, "attack": 0.05},
        assumptions=("Held-out persons are independent draws.", "One row a person & no more."),
        model="ab" * 16,
        rows="cd" * 16,
        seed=0,
        n_draws=1000,
        versions={"fairflows": "0.1.0"},
        target=0.05,
        model_delta=1e-17,
        model_upper=2e-12,
        model_accuracy_upper=0.5,
        cell_delta=0.01,
        cell_upper=0.0340,
        cell_accuracy_upper=0.517,
        cell_odds_upper={"0": 0.06, "1": 0.11},
        attack_lower=0.0,
        attack_by="boosted trees",
        density_gap_lower={"<b>women</b>": 0.02, "men": 0.01},
        density_error=(0.01, 0.02),
        vouched_upper=0.03,
        n_cells=16,
        look=2,
    ).sealed(KEY)


def test_json_loses_nothing(certificate):
    assert Certificate.from_json(certificate.to_json()) == certificate
    assert set(json.loads(certificate.to_json())) == {"format", *STATED}


def test_what_was_read_is_stated_and_not_checked(certificate):
    """Anybody can write such a text: here one whose bound lies below what was observed."""
    values = json.loads(certificate.to_json())
    forged = Certificate.from_json(json.dumps({**values, "cell_upper": 0.001, "cell_delta": 0.2}))
    for text in (repr(forged), forged._repr_html_()):
        assert "NOT CHECKED (`fairflows check` does that). Somebody states: " in text
    assert repr(forged).startswith("NOT CHECKED")
    assert "NOT CHECKED" not in repr(certificate) + certificate._repr_html_()


def test_json_of_another_format_is_refused(certificate):
    values = json.loads(certificate.to_json())
    with pytest.raises(ValueError, match="'format' must be 1; got 2"):
        Certificate.from_json(json.dumps({**values, "format": 2}))
    with pytest.raises(ValueError, match="no field 'better'"):
        Certificate.from_json(json.dumps({**values, "better": 0}))
    with pytest.raises(ValueError, match="no field 'unchecked'"):
        Certificate.from_json(json.dumps({**values, "unchecked": False}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested more than .* levels deep"),
        ('{"format": 1, "n": ' + '{"a":' * 100_000, "nested more than .* levels deep"),
        ("[]", "'format' must be 1; got None"),
        ("7", "'format' must be 1; got None"),
        ('{"format": 1}', "must state 'status'"),
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
        ("released", "cell"),
        ("n", [1, 2]),
        ("n", {"a": "many"}),
        ("n", {"a": True}),
        ("seed", 1.5),
        ("cell_upper", -0.1),
        ("cell_upper", "0.01"),
        ("cell_upper", float("nan")),
        ("cell_odds_upper", {"0": 2}),
        ("attack_lower", 1.01),
        ("target", float("inf")),
        ("spent", {"cells": None}),
        ("priors", [0.5, 0.25, 0.25]),
        ("density_error", [0.1]),
        ("assumptions", [1]),
    ],
)
def test_a_statement_of_the_wrong_kind_is_refused(certificate, name, value):
    values = json.loads(certificate.to_json())
    with pytest.raises(ValueError, match=f"cannot state {name} = "):
        Certificate.from_json(json.dumps({**values, name: value}))


def test_bounds_are_printed_on_the_safe_side(certificate):
    """.057727 is no bound of .0577, and an attack that proves .05779 does not prove .0578."""
    shown = replace(
        certificate, cell_upper=0.057727, cell_accuracy_upper=0.528863, cell_odds_upper={"0": 0.06001},
        model_upper=0.12341, model_accuracy_upper=0.5617, attack_lower=0.05779, person_upper=0.04441, person_delta=0.01,
        vouched_upper=0.03331, density_gap_lower={"men": 0.01999}, density_error_lower=0.00019,
    )  # fmt: skip
    for text in (repr(shown), shown._repr_html_().replace("&#x27;", "'")):
        for part in ("≤ 0.0578", "52.9 %", "0: Δ ≤ 0.0601", "≤ 0.1235", "56.2 %", "Δ ≥ 0.0577", "Δ ≤ 0.0445",
                     "Δ ≤ 0.0334", "≥ 0.0199", "at least 0.0001"):  # fmt: skip
            assert part in text
    exact = replace(certificate, cell_upper=0.05, cell_accuracy_upper=0.525)
    assert "Δ ≤ 0.0500, adversary 52.5 %" in repr(exact), "what needs no rounding is not rounded"


@pytest.mark.parametrize("name", [name for name in STATED if name != "seal"])
def test_the_seal_covers_every_field(certificate, name):
    value = getattr(certificate, name)
    other = {str: "x", int: 99, float: 0.123, dict: {"x": 0.5}, tuple: ("x",), type(None): 0.5}[type(value)]
    changed = replace(certificate, **{name: other})
    assert changed.sealed(KEY).seal != certificate.seal
    assert certificate.sealed(b"other key").seal != certificate.seal


def test_repr_says_what_about_what_and_under_which_assumptions(certificate):
    text = repr(certificate)
    for part in ("CERTIFIED: holds for the true distribution", "Δ ≤ 0.0340", "51.7 %", "boosted trees", "4,913",
                 "cell and label (16 cells)", "<i>sex</i>", "certificate 2 from these persons",
                 *certificate.assumptions):  # fmt: skip
        assert part in text
    assert max(len(line) for line in text.splitlines()[:-2]) < 140


def test_of_three_groups_the_deciding_number_is_shown(certificate):
    """The accuracy of guessing one of three decides, and (1 + Δ)/2 is that of the worst pair alone."""
    three = replace(
        certificate, n={"a": 10, "b": 10, "c": 10}, target=None, target_accuracy=0.45, cell_upper=0.184,
        cell_accuracy_upper=0.431, model_upper=0.1, model_accuracy_upper=0.377,
    )  # fmt: skip
    for text in (repr(three), three._repr_html_()):
        for part in ("adversary 43.1 % (blind 33.3 %)", "worst pair 59.2 %", "adversary 37.7 %", "worst pair 55.0 %"):
            assert part in text
    assert "worst pair 52.5 %" in repr(replace(three, target=0.05, target_accuracy=None))


def test_the_densities_that_were_judged_are_named(certificate):
    assert "KernelDensity, the best of 3" in repr(replace(certificate, density="KernelDensity, the best of 3"))


def test_html_escapes_what_comes_from_the_table(certificate):
    html = certificate._repr_html_()
    assert "<b>women" not in html
    assert "<i>sex" not in html
    assert "&lt;b&gt;women" in html
    assert "no more." in html
    assert "CERTIFIED" in html


def test_plot_shows_every_bound_and_the_target(certificate):
    axes = replace(certificate, attack_lower=0.01, model_upper=0.2).plot(before=0.7)
    assert [text.get_text() for text in axes.texts] == ["≤ 0.034", "≤ 0.200", "≥ 0.010", "≥ 0.700", "target"]
    assert len(axes.child_axes) == 1, "the scale of right guesses"
    given = axes.figure.add_subplot()
    three = replace(certificate, n={"a": 10, "b": 10, "c": 10}, target=None, target_accuracy=0.45)
    assert three.plot(ax=given) is given
    assert given.child_axes == [], "of three groups, (1 + Δ)/2 is not how often a guess is right"
    assert "target" not in [text.get_text() for text in given.texts]
    plt.close("all")
    with pytest.raises(ValueError, match=r"before must be a distance in \[0, 1\]; got 70"):
        certificate.plot(before=70)


def test_what_was_not_computed_is_said(certificate):
    bare = Certificate(
        **{
            f.name: getattr(certificate, f.name)
            for f in fields(Certificate)
            if f.name
            in ("sensitive", "n", "delta", "spent", "assumptions", "model", "rows", "seed", "n_draws", "versions")
        },
        status="NOT_MET",
        released=("latent",),
    )
    text = repr(bare)
    assert "nothing is certified" in text
    assert "no statement" in text
    assert "not attacked" in text

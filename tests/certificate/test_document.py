"""A certificate survives JSON, shows what it says, and its seal shows when it was changed."""

import json
from dataclasses import fields, replace

import pytest

from fairflows.certificate.document import Certificate

KEY = b"secret"


@pytest.fixture
def certificate() -> Certificate:
    return Certificate(
        status="CERTIFIED",
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
    assert set(json.loads(certificate.to_json())) == {"format", *(f.name for f in fields(Certificate))}


def test_json_of_another_format_is_refused(certificate):
    values = json.loads(certificate.to_json())
    with pytest.raises(ValueError, match="'format' must be 1; got 2"):
        Certificate.from_json(json.dumps({**values, "format": 2}))
    with pytest.raises(ValueError, match="no field 'better'"):
        Certificate.from_json(json.dumps({**values, "better": 0}))


@pytest.mark.parametrize("name", [f.name for f in fields(Certificate) if f.name != "seal"])
def test_the_seal_covers_every_field(certificate, name):
    value = getattr(certificate, name)
    other = {str: "x", int: 99, float: 0.123, dict: {"x": 0.5}, tuple: ("x",), type(None): 0.5}[type(value)]
    changed = replace(certificate, **{name: other})
    assert changed.sealed(KEY).seal != certificate.seal
    assert certificate.sealed(b"other key").seal != certificate.seal


def test_repr_says_what_about_what_and_under_which_assumptions(certificate):
    text = repr(certificate)
    for part in ("CERTIFIED: holds for the true distribution", "Δ ≤ 0.0340", "51.7 %", "boosted trees", "4,913",
                 "cell and label (16 cells)", "certificate 2 from these rows", *certificate.assumptions):  # fmt: skip
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
    assert "&lt;b&gt;women" in html
    assert "no more." in html
    assert "CERTIFIED" in html


def test_what_was_not_computed_is_said(certificate):
    bare = Certificate(
        **{
            f.name: getattr(certificate, f.name)
            for f in fields(Certificate)
            if f.name in ("n", "delta", "spent", "assumptions", "model", "rows", "seed", "n_draws", "versions")
        },
        status="NOT_MET",
        released=("latent",),
    )
    text = repr(bare)
    assert "nothing is certified" in text
    assert "no statement" in text
    assert "not attacked" in text

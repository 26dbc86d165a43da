"""The picture in people: it shows the numbers that the certificate states, and so do the axes in Python."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from test_page import contents, stated

from fairflows import Frontier, Report, Table, Usefulness, share
from fairflows.report.people import GUESSED, guesses_of_100, headline, people_svg
from fairflows.worth.leakage import ColumnLeakage

BEFORE = {"adversary": "boosted trees", "balanced_accuracy": 0.862}


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def shared():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=900).round(2), "sex": rng.choice(["f", "m"], 900)})
    return share(Table(frame, sensitive="sex"), target=0.3, quick=True)


def test_what_it_shows_is_what_the_certificate_states():
    guesses = guesses_of_100(stated(cell=0.0801), BEFORE)
    assert guesses == [("before, by an adversary", 86.2), ("after, at most", 54.1), ("by a coin", 50.0)]
    svg = people_svg(guesses)
    assert [part.count(f'fill="{GUESSED}"') for part in svg.split("<svg")[1:]] == [86, 54, 50]
    assert [part.count("<circle") for part in svg.split("<svg")[1:]] == [100, 100, 100]
    assert "style" not in svg
    assert guesses_of_100(stated(cell=None), BEFORE) == []


@pytest.mark.parametrize(
    "values",
    [{}, {"status": "NOT_MET"}, {"sensitive": ["sex", "country of birth"]}, {"n": {"a": 9, "b": 9, "c": 9}}],
)
@pytest.mark.parametrize("before", [None, BEFORE])
def test_the_headline_has_at_most_25_words(values, before):
    said = headline(stated(**values), before)
    assert len(said.split()) <= 25
    assert "54 of 100" in said
    assert ("Target missed" in said) == ("status" in values)
    assert ("86.2" in said) == (before is not None)


def test_the_report_begins_with_it():
    page = Report(contents()).to_html(public=True)
    assert "at most 54 of 100 guesses of town are right" in page
    assert page.index("<svg") < page.index("This holds for every method")
    assert "at most 55.0 of 100 guesses between two groups are right (Δ ≤ 0.1)" in page
    assert headline(stated(cell=None), None) == ""


def test_a_result_draws_its_guesses(shared):
    axes = shared.plot()
    texts = [text.get_text() for text in axes.texts]
    assert texts[1::2] == ["after, at most", "by a coin"]
    assert float(texts[0]) == guesses_of_100(shared.certificate, None)[0][1]
    dots = [len(part.get_offsets()) for part in axes.collections]
    assert dots == [100 - round(float(texts[0])), round(float(texts[0])), 50, 50]
    given = plt.subplots()[1]
    assert shared.plot(given) is given
    assert "<svg" in shared._repr_html_()


def test_usefulness_draws_each_column():
    told = [ColumnLeakage("town", 0.9, 0.5), ColumnLeakage("age", 0.3, 0.25), ColumnLeakage("sex", 0.51, 0.5)]
    axes = Usefulness((), None, tuple(told[:2]), told[2], 100, 400).plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["town", "age", "sex"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([80, 100 / 15, 2])


@pytest.mark.parametrize("measure", ["accuracy", "strength"])
def test_a_frontier_draws_models_and_means(measure):
    frame = pd.DataFrame({"strength": [0.0, 0.0, 1.0, 1.0], "seed": [0, 1, 0, 1], "distance": [0.4, 0.5, 0.1, 0.2]})
    frame = frame.assign(accuracy=[0.9, 0.8, 0.7, 0.6]) if measure == "accuracy" else frame
    axes = Frontier([], frame).plot()
    assert axes.get_ylabel() == measure
    np.testing.assert_allclose(axes.collections[0].get_offsets(), frame[["distance", measure]])
    means = np.array(axes.lines[0].get_xydata())
    np.testing.assert_allclose(means[:, 0], [0.45, 0.15])

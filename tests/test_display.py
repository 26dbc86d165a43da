"""Progress bars, HTML cards, and bounds on one scale."""

import matplotlib.pyplot as plt
import pytest

from fairflows.display import ATTACK, CERTIFIED, MODEL, Bound, draw_bounds, html_card, progress_bar


def test_a_progress_bar_writes_to_standard_error_only_if_enabled(capsys):
    for enabled in (True, False):
        with progress_bar("counting", enabled=enabled) as show:
            show(1, 2, "[one] of two")
        shown = capsys.readouterr()
        assert shown.out == ""
        assert ("counting" in shown.err and "[one] of two" in shown.err) == enabled


def test_a_card_escapes_every_text():
    bad = "<script>&"
    html = html_card(bad, bad, [(bad, bad)], [bad], badge=(bad, bad))
    assert "<script" not in html
    assert html.count("&lt;script&gt;&amp;") == 7


@pytest.fixture
def axes():
    yield plt.subplots()[1]
    plt.close("all")


def test_bounds_are_drawn_from_the_top_and_rounded_to_the_safe_side(axes):
    bounds = [Bound("attack", 0.0579, ATTACK), Bound("model", 0.1231, MODEL), Bound("certified", 0.0571, CERTIFIED)]
    draw_bounds(axes, bounds, target=0.3, percent="right, %")
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[::-1] == ["attack", "model", "certified"]
    texts = {round(text.xy[1]): text.get_text() for text in axes.texts if text.get_text() != "target"}
    assert texts == {2: "≥ 0.057", 1: "≤ 0.124", 0: "≤ 0.058"}
    assert axes.get_xlim()[1] == pytest.approx(0.375), "the target is within the scale"
    (above,) = axes.child_axes
    axes.figure.draw_without_rendering()
    assert above.get_xlabel() == "right, %"
    assert above.get_xlim() == pytest.approx((50, 68.75))

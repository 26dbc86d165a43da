"""Progress bars, HTML cards, and bounds on one scale."""

from known_tables import people

from fairflows import Release, Table
from fairflows.display import html_card, progress_bar, say, stages


def test_a_progress_bar_writes_to_standard_error_only_if_enabled(capsys):
    for enabled in (True, False):
        with progress_bar("counting", enabled=enabled) as show:
            show(1, 2, "[one] of two")
        shown = capsys.readouterr()
        assert shown.out == ""
        assert ("counting" in shown.err and "[one] of two" in shown.err) == enabled


def test_within_stages_a_release_shows_how_many_columns_of_its_rows_are_fitted(capsys, monkeypatch):
    table = Table(people(600), sensitive="sex", label="repaid", identifier="person")
    Release().fit_transform(table)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes standard error for a terminal
    monkeypatch.setenv("TERM", "xterm")  # which can draw bars
    with stages():
        say("sharing [people]")
        Release().fit_transform(table)
    shown = capsys.readouterr().err
    texts = ["s] sharing [people]", "fitting columns", "1 of 5", "5 of 5", "drawing rows", "1 of 1"]
    assert [text for text in texts if text not in shown] == []


def test_a_card_escapes_every_text():
    bad = "<script>&"
    html = html_card(bad, bad, [(bad, bad)], [bad], badge=(bad, bad))
    assert "<script" not in html
    assert html.count("&lt;script&gt;&amp;") == 7

"""Progress bars, HTML cards, and bounds on one scale."""

from fairflows.display import html_card, progress_bar


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

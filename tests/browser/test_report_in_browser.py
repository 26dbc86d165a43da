"""The report in a real browser: it shows, nothing runs, nothing is cut off."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

from test_reporting import EVIL, contents
from webdriver import Browser, missing

from fairflows.reporting import Report

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

# Elements that stick out of the page, but for what scrolls in a box of its own.
STICKING_OUT = """
return [...document.querySelectorAll('body *')].filter(e => {
  if (e.closest('.scroll')) return false;
  const box = e.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.tagName + ' ' + e.className + ' ' + Math.round(e.getBoundingClientRect().right));
"""


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.mark.parametrize("width", [400, 1200])
def test_the_report_shows(browser, width, tmp_path):
    page = tmp_path / "report.html"
    Report(contents(EVIL)).save(page)
    browser.open(page, width)
    assert browser.console() == []
    shown = browser.run("return [...document.images].map(i => i.complete && i.naturalWidth > 100)")
    assert shown == [True] * 8
    assert EVIL in browser.run("return document.querySelector('h1').textContent")
    assert browser.run("return document.scripts.length") == 0
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(STICKING_OUT) == []


def test_tables_wider_than_a_phone_scroll_in_their_own_box(browser, tmp_path):
    page = tmp_path / "report.html"
    Report(contents("a quite long name of a column")).save(page)
    browser.open(page, 400)
    boxes = browser.run(
        "return [...document.querySelectorAll('.scroll')].map(b => [b.clientWidth, getComputedStyle(b).overflowX])"
    )
    assert boxes
    assert all(width <= 400 and how == "auto" for width, how in boxes)

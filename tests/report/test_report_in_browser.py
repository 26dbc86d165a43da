"""The report in a real browser: it shows, nothing runs, nothing is cut off."""

import pytest
from test_page import EVIL, contents
from webdriver import Browser, missing

from fairflows import Report

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

# Elements that stick out of the page, or of the box that they would have to be scrolled in.
STICKING_OUT = """
return [...document.querySelectorAll('body *')].filter(e => {
  if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != 'visible') return true;
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
    bars = browser.run("return [...document.querySelectorAll('.scale span')].map(e => e.getBoundingClientRect().width)")
    assert max(bars) > 50
    assert EVIL in browser.run("return document.querySelector('h1').textContent")
    assert browser.run("return document.scripts.length") == 0
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(STICKING_OUT) == []


def test_tables_stand_upright_on_a_phone(browser, tmp_path):
    page = tmp_path / "report.html"
    Report(contents("a quite long name of a column")).save(page)
    browser.open(page, 400)
    assert browser.run(STICKING_OUT) == []
    shown = "return [...document.querySelectorAll('td')].map(cell => getComputedStyle(cell).display)"
    assert set(browser.run(shown)) == {"block"}
    browser.open(page, 1200)
    assert set(browser.run(shown)) == {"table-cell"}

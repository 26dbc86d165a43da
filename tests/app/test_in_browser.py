"""The page in a real browser, used as an officer would: by mouse, by keyboard, for tables of many kinds."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from webdriver import Browser, missing

import fairflows as ff

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

# axe-core's axe.min.js, which finds what keeps people from using a page: `npm pack axe-core` has it.
AXE = Path(os.environ.get("FAIRFLOWS_AXE", "axe.min.js"))
SERIOUS = """return (await axe.run(document)).violations.filter(({impact}) => ["serious", "critical"].includes(impact))
  .map(({id, nodes}) => `${id}: ${nodes.slice(0, 3).map(({html}) => html.slice(0, 120)).join(" | ")}`)"""
TAB, ENTER, RIGHT, SPACE = "\ue004", "\ue007", "\ue014", " "
# Elements that stick out of the page, unless they are scrolled in a box of their own.
STICKING_OUT = """return [...document.querySelectorAll('main *, header *')].filter(e => {
  const box = e.getBoundingClientRect();
  return !e.closest('.scroll, .hidden') && box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 30))"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page of `fairflows app`, in a process of its own."""
    home = tmp_path_factory.mktemp("home")
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home), "FAIRFLOWS_LEDGER": str(home / "l")}
    command = [sys.executable, "-m", "fairflows", "app", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    yield re.search(r"http\S+", process.stdout.readline())[0]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)


@pytest.fixture(scope="module")
def browser():
    opened = Browser(network=True)
    opened.resize(1200)
    yield opened
    opened.close()


def until(browser, script, timeout=120):
    """What a script returns as soon as that is true."""
    end = time.monotonic() + timeout
    while not (found := browser.run(script)):
        assert time.monotonic() < end, browser.run("return document.body.innerText")
        time.sleep(0.1)
    return found


def at(browser, screen):
    until(browser, f"return location.pathname.endsWith('{screen}') && document.readyState == 'complete'")


def role_of(browser, column, role):
    """Choose a role, which sends the form."""
    browser.run(f"window.before = 1; document.getElementsByName('role {column}')[0].value = '{role}'")
    browser.run(f"document.getElementsByName('role {column}')[0].dispatchEvent(new Event('change'))")
    until(browser, "return !window.before && document.readyState == 'complete'")


def people(n=600, seed=0):
    rng = np.random.default_rng(seed)
    frame = {"x": rng.normal(size=n).round(2), "z": rng.integers(0, 9, n), "sex": rng.choice(["f", "m"], n)}
    return pd.DataFrame(frame | {"y": rng.integers(2, size=n)})


def with_gaps():
    frame = people(900)
    frame.loc[:149, "sex"] = None
    return frame


def panel():
    """Two rows of each person, who is of one group."""
    return people(1200).assign(who=lambda t: t.index // 2, sex=lambda t: t["sex"][t["who"] * 2].to_numpy())


def wide():
    rng = np.random.default_rng(1)
    return people().join(pd.DataFrame(rng.normal(size=(600, 146)).round(2), columns=[f"c{i}" for i in range(146)]))


TABLES = {
    "adult": (None, {"sex": "sensitive", "income": "label"}),
    "german": (lambda path: people().to_csv(path, index=False, sep=";", decimal=","), {}),
    "gaps": (lambda path: with_gaps().to_csv(path, index=False), {}),
    "groups": (lambda path: people(1500).assign(sex=lambda t: t.index % 5).to_csv(path, index=False), {}),
    "panel": (lambda path: panel().to_csv(path, index=False), {"who": "person"}),
    "wide": (lambda path: wide().to_csv(path, index=False), {}),
}


EVERY_TABLE = ["german", *(pytest.param(n, marks=pytest.mark.slow) for n in TABLES if n != "german")]


@pytest.mark.parametrize("name", EVERY_TABLE)
def test_from_a_file_to_a_released_table_by_mouse(name, browser, address, tmp_path):
    """Every screen shows without an error, sticks out nowhere, and asks for nothing but the page's own address."""
    write, roles = TABLES[name]
    browser.requests()
    browser.go(address)
    shows(browser)
    if write is None:
        browser.click("form button")
        at(browser, "/columns")
    else:
        write(tmp_path / f"{name}.csv")
        browser.choose("#file", tmp_path / f"{name}.csv")
        at(browser, "/table")
        shows(browser)
        browser.click("a[href=columns]")
        at(browser, "/columns")
        for column, role in ({"sex": "sensitive", "y": "label"} | roles).items():
            role_of(browser, column, role)
    if name == "gaps":
        assert "sex is unknown in 150 rows (16.7 %)" in browser.run("return document.body.innerText")
        browser.click(".stops button")
    shows(browser)
    until(browser, "return document.querySelector('[value=next]:not(:disabled)') != null")
    browser.click("[value=next]")
    at(browser, "/target")
    browser.run("const s = document.getElementById('target'); s.value = .3; s.dispatchEvent(new Event('change'))")
    until(browser, "return document.getElementById('target').value == .3 && !document.querySelector('[aria-busy]')")
    shows(browser)
    browser.click("[name=quick]")
    browser.click("form button")
    at(browser, "/result")
    shows(browser)
    browser.run(f"document.getElementsByName('folder')[0].value = '{tmp_path / 'out'}'")
    browser.click("[action=release] button")
    until(browser, "return document.querySelector('.piles') != null")
    assert ff.check(tmp_path / "out")
    root = "/".join(address.split("/")[:4])
    browser.go(f"{root}/check")
    browser.choose("#file", tmp_path / "out" / "certificate.json", tmp_path / "out" / "shared.csv")
    assert "All checks passed" in until(browser, "return document.querySelector('.verdict')?.textContent")
    shows(browser)
    browser.go(f"{root}/releases")
    shows(browser)
    browser.go(f"{root}/watch")
    shows(browser)
    browser.click("main li a")
    until(browser, "return document.querySelector('[data-upload]') != null")
    if name == "german":
        people(200, seed=1).to_csv(tmp_path / "later.csv", index=False, sep=";", decimal=",")
        browser.choose("#file", tmp_path / "later.csv")
        until(browser, "return document.querySelector('.curve') != null")
    shows(browser)
    assert browser.console() == []
    asked = browser.requests()
    assert len(asked) > 20
    assert {"/".join(url.split("/")[:4]) for url in asked if not url.startswith("data:")} == {root}


def shows(browser):
    """Check a screen on a phone, and with letters of twice the size: nothing is cut off, and axe finds no fault."""
    for width in (400, 600, 1200):
        browser.resize(width, "dark" if width == 400 else "light")
        assert browser.run(STICKING_OUT) == []
        if AXE.is_file() and width != 600:
            browser.run(AXE.read_text("utf-8"))
            assert browser.wait_for(SERIOUS) == []


@pytest.mark.skipif(not AXE.is_file(), reason="FAIRFLOWS_AXE does not lead to axe-core's axe.min.js")
def test_axe_finds_what_is_wrong(browser, address):
    """The control of the checks above: a picture without a text, and letters that are hard to see."""
    browser.go(address)
    browser.run("document.body.append(new Image(), Object.assign(document.createElement('p'), {textContent: 'faint'}))")
    browser.run("document.body.lastChild.style.color = '#ddd'")
    browser.run(AXE.read_text("utf-8"))
    assert {found.split(":")[0] for found in browser.wait_for(SERIOUS)} == {"image-alt", "color-contrast"}


def tab_to(browser, script):
    """Press Tab until a script about the element `e` that has the focus is true."""
    for _ in range(400):
        browser.press(TAB)
        if browser.run(f"const e = document.activeElement; return {script}"):
            seen = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
            assert seen != "none", "the focus is seen"
            return
    raise AssertionError(browser.run("return document.body.innerText"))


def role_by_keyboard(browser, column, role):
    """Choose a role by its first letters, which sends the form; the column has the focus again."""
    tab_to(browser, f"e.name == 'role {column}'")
    browser.run("window.before = 1")
    browser.press(*role[:2])
    browser.press(ENTER)
    until(browser, f"return !window.before && document.getElementsByName('role {column}')[0].value == '{role}'")
    until(browser, f"return document.activeElement.name == 'role {column}'")


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_by_keyboard_alone(name, browser, address, tmp_path):
    write, roles = TABLES[name]
    browser.resize(1200)
    browser.go(address)
    if write is None:
        tab_to(browser, "e.textContent.startsWith('Try it')")
        browser.press(ENTER)
    else:
        write(tmp_path / f"{name}.csv")
        tab_to(browser, "e.id == 'file'")
        browser.choose("#file", tmp_path / f"{name}.csv")  # the dialog is the system's
        at(browser, "/table")
        tab_to(browser, "e.textContent == 'Next: columns'")
        browser.press(ENTER)
        at(browser, "/columns")
        for column, role in ({"sex": "sensitive"} | roles).items():
            role_by_keyboard(browser, column, role)
    at(browser, "/columns")
    if name == "gaps":
        tab_to(browser, "e.closest('.stops') != null")
        browser.run("window.before = 1")
        browser.press(ENTER)
        until(browser, "return !window.before && document.querySelector('[value=next]:not(:disabled)') != null")
    tab_to(browser, "e.value == 'next'")
    browser.press(ENTER)
    at(browser, "/target")
    tab_to(browser, "e.id == 'target'")
    before = browser.run("return +document.getElementById('target').value")
    browser.press(RIGHT)
    assert browser.run("return +document.getElementById('target').value") == pytest.approx(min(before + 0.01, 0.3))
    tab_to(browser, "e.name == 'quick'")
    browser.press(SPACE)
    tab_to(browser, "e.textContent == 'Share'")
    browser.press(ENTER)
    at(browser, "/result")
    tab_to(browser, "e.name == 'issuer'")
    browser.press(*"Ulm")
    tab_to(browser, "e.name == 'folder'")
    browser.run(f"document.activeElement.value = '{tmp_path / 'out'}'")
    tab_to(browser, "e.textContent == 'Release'")
    browser.press(ENTER)
    until(browser, "return document.querySelector('.piles') != null")
    assert ff.check(tmp_path / "out").certificate.about.issuer == "Ulm"

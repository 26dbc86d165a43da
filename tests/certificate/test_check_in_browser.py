"""The public report checks itself in a browser, and comes to the verdicts of `check`."""

import base64
import csv
import io
import json
import random

import numpy as np
import pandas as pd
import pytest
from damages import cut_off, flipped, swapped
from known_tables import patients_and_visits
from test_check import people
from test_damage import edited
from webdriver import Browser, missing

import fairflows as ff
from fairflows import DataError, Table, share
from fairflows.certificate.about import About

pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]


def odd_people() -> Table:
    """Dates, gaps, quotes, line ends and five groups, whose names are numbers."""
    rng, n = np.random.default_rng(3), 1500
    columns = {
        "land": rng.choice([1, 2, 3, 4, 5], n),
        "Größe, cm": np.where(rng.random(n) < 0.1, np.nan, np.round(rng.normal(170, 9, n), 1)),
        "born": pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 20_000, n), unit="D"),
        "town": rng.choice(["Ulm", 'say "hi"', "two\nlines", "a,b", None], n),
        "owns": rng.random(n) < 0.5,
    }
    return Table(pd.DataFrame(columns), sensitive="land", name="odd")


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("released")
    several = people(2, 900, groups=3, most=3)
    share(people(0, 700), quick=True, target=0.4).save(place / "rows")
    share(people(1, 2500), quick=True, target=0.4, method="cells", output="cell").save(place / "cells")
    share(several, quick=True, target=0.4, output="cell").save(place / "several")
    share(people(4, 300, most=4), quick=True, target=0.6).save(place / "panels")
    linked = patients_and_visits(400)
    roles = {"identifier": "patient", "sensitive": "sex", "time": "day"}
    share(linked, **roles, quick=True, target=0.6).save(place / "linked")
    everybody = people(5, 1000)
    first = share(everybody.take(range(900)), quick=True, target=0.4).save(place / "first")
    share(everybody.take(range(100, 1000)), again=first, quick=True).save(place / "again")
    share(odd_people(), quick=True, target=0.6, about=About(valid_until="2999-12-31")).save(place / "odd")
    return place


def test_a_bound_of_narrow_groups_is_not_said_to_be_checked(browser, tmp_path):
    """This page does not compute it again, as `fairflows check` does; every other line agrees."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.integers(18, 90, 3000), "x": rng.normal(size=3000).round(2)})
    folder = tmp_path / "ages"
    share(Table(rows, sensitive="age", uncut="age"), quick=True, target=0.3).save(folder)
    browser.open(folder / "report-public.html", 1200)
    files = folder / "certificate.json", folder / "shared.csv"
    python, found = by_python(*files), by_browser(browser, *files)
    narrow = [each for each in found if each not in python]
    assert {what.split(",")[0] for what, _ in narrow} == {"bound"}
    assert {verdict for _, verdict in narrow} == {"UNKNOWN"}
    assert len(found) == len(python)
    said, _ = shown(browser, folder / "report-public.html", files[1])
    assert said.startswith("What this page knows agrees; bound,")


def by_python(certificate, path):
    try:
        found = ff.check(certificate, path)
    except DataError as error:  # JavaScript does not tell 1.0 from 1
        return None if "expected `int`, got `float`" in str(error) else "refused"
    return sorted([result.what, result.verdict] for result in found.results)


def by_browser(browser, certificate, path):
    file = base64.b64encode(path.read_bytes()).decode()
    script = """const [text, name, file] = given, bytes = Uint8Array.from(atob(file), (c) => c.charCodeAt(0));
        const schema = JSON.parse(document.getElementById("schema").textContent);
        return (await check(text, schema, {name, bytes})).map(({what, verdict}) => [what, verdict]);"""
    found = browser.wait_for(script, certificate.read_text("utf-8"), path.name, file)
    return "refused" if isinstance(found, str) else sorted(found)


def another_form(data, rng):
    """The same table, as other programs would write it."""
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    text, order = io.StringIO(), rng.sample(range(len(rows[0])), len(rows[0]))
    body = rng.sample(rows[1:], len(rows) - 1)
    written = [[row[j] for j in order] for row in [rows[0], *body]]
    separator, quoting = rng.choice(",;\t|"), rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
    csv.writer(text, delimiter=separator, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"])).writerows(written)
    return text.getvalue().encode(rng.choice(["utf-8", "utf-8-sig", "utf-16"]))


def one_value_changed(data, rng):
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
    rows[i][j] = rng.choice(["", "7", "x", "1.5", "2020-02-30", "True", f"{rows[i][j]}1", f"+{rows[i][j]}"])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def one_column_more(data, rng):
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    name = rng.choice(["sex", "land", "group", "a", rows[0][0]])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[*row, "1" if i else name] for i, row in enumerate(rows)])
    return text.getvalue().encode()


DAMAGES = [flipped, cut_off, swapped, another_form, another_form, one_value_changed, one_column_more]


@pytest.mark.parametrize("n", [15, pytest.param(500, marks=pytest.mark.slow)])
def test_it_agrees_with_the_command(n, browser, folders, tmp_path):
    """True and damaged pairs of a certificate and a file; every line has the same verdict."""
    rng, counted = random.Random(n), dict.fromkeys(["passed", "failed", "refused"], 0)
    different = []
    browser.open(folders / "odd" / "report-public.html", 1200)
    for number in range(n):
        folder = folders / rng.choice(["rows", "cells", "several", "odd", "panels", "linked", "again"])
        shared = rng.choice(["shared.csv", "shared-persons.csv"]) if folder.name == "linked" else "shared.csv"
        certificate, table = (folder / name for name in ("certificate.json", shared))
        damaged = rng.choice([certificate, certificate, table, table, None])
        paths = {each: tmp_path / f"{number}-{each.name}" for each in (certificate, table)}
        for each, path in paths.items():
            how = edited if each == certificate else rng.choice(DAMAGES)
            path.write_bytes(how(each.read_bytes(), rng) if each == damaged else each.read_bytes())
        python = by_python(*paths.values())
        if python is None:
            continue
        found = by_browser(browser, *paths.values())
        if found != python:
            only = [[each for each in a if each not in b] for a, b in ((python, found), (found, python))]
            different.append((number, folder.name, damaged, *only))
        kind = python if isinstance(python, str) else "failed" if any(v == "FAILED" for _, v in python) else "passed"
        counted[kind] += 1
    assert not different, f"{different}, {counted}"
    assert all(count > n / 50 for count in counted.values())


def test_statements_that_came_later_are_not_known_and_never_checked(browser, folders):
    """The schema in the page may have kinds of statements that its script does not know."""
    browser.open(folders / "rows" / "report-public.html", 1200)
    script = """const [text, about] = given, schema = JSON.parse(document.getElementById("schema").textContent);
        const later = structuredClone(schema), c = JSON.parse(text);
        later.$defs.Statement.properties.about.enum.push("weather");
        later.$defs.Statement.properties.rain = { type: "number", default: 0 };
        later.$defs.Statement.properties.by.pattern = ".";
        c.statements.push({ about, by: "barometer", distance: 0.1, met: true, rain: 0.5 });
        return [await check(JSON.stringify(c), later), await check(text, later).then((found) => found.length)];"""
    text = (folders / "rows" / "certificate.json").read_text("utf-8")
    found, n_known = browser.wait_for(script, text, "weather")
    unknown = [each for each in found if each["verdict"] == "UNKNOWN"]
    assert [each["what"] for each in unknown] == ["bound, weather", "status"]
    assert len(found) == n_known + 1
    assert not [each for each in found if each["verdict"] == "FAILED"]
    assert "cannot be" in browser.wait_for(script, text, "another"), "which no schema has"


def shown(browser, page, *files):
    """What the page says about files that are chosen in it."""
    browser.open(page, 400)
    browser.choose("#files", *files)
    waiting = """const said = document.getElementById("checked");
        const isReady = () => said.textContent && !said.textContent.startsWith("Checking");
        while (!isReady()) await new Promise((on) => setTimeout(on, 50));
        return [said.textContent, document.getElementById("results").innerText];"""
    return browser.wait_for(waiting)


def test_a_receiver_drops_the_table_on_the_page(browser, folders, tmp_path):
    page, table = folders / "rows" / "report-public.html", folders / "rows" / "shared.csv"
    said, lines = shown(browser, page, table)
    assert said == "All checks passed."
    assert "cannot be known from here: author." in lines
    assert browser.console() == []
    changed = tmp_path / "shared.csv"
    changed.write_bytes(one_value_changed(table.read_bytes(), random.Random(1)))
    said, lines = shown(browser, page, changed)
    assert said.startswith("Do not rely on this")
    assert "failed: file. It is not the table that was certified" in lines
    other = folders / "several" / "certificate.json"
    assert shown(browser, page, table, other)[0].startswith("Do not rely on this")


def test_the_page_asks_for_nothing(folders):
    """The log of the network holds the page itself, and nothing else."""
    logged = Browser(network=True)
    try:
        said, _ = shown(logged, folders / "rows" / "report-public.html", folders / "rows" / "shared.csv")
        asked = [url for url in logged.requests() if not url.startswith(("data:", "chrome:"))]
    finally:
        logged.close()
    assert said == "All checks passed."
    assert asked == [(folders / "rows" / "report-public.html").as_uri()]


@pytest.mark.parametrize(
    "sending",
    ["await fetch(to)",
     "await new Promise((on, off) => Object.assign(new Image(), {onload: on, onerror: off}).src = to)",
     "if (!navigator.sendBeacon(to, 'x')) throw 1; await new Promise((on) => setTimeout(on, 200))",
     "document.head.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'})); "
     "if (!window.ran) throw 1"],
)  # fmt: skip
def test_the_page_can_send_nothing_and_run_nothing_else(sending, browser, folders):
    """The policy stops what a damaged script would try; the console names the directive."""
    page = folders / "rows" / "report-public.html"
    browser.open(page, 1200)
    browser.wait_for(f"const to = 'http://127.0.0.1:9/'; try {{ {sending} }} catch {{ return 'stopped' }}")
    assert "Content Security Policy" in json.dumps(browser.console())

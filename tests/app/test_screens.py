"""The page: from a file to a released table, and what its screens say on the way."""

import json
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows import DataError, Table, share
from fairflows.app.outlook import _levels

pytestmark = pytest.mark.usefixtures("few_trees")

EVIL = "<script>alert(1)</script>"


def people(n=900, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    start = rng.integers(0, 50, n)
    frame = {"x": rng.normal(size=n).round(2), "start": start, "end": start + rng.integers(0, 50, n), "sex": sex}
    return pd.DataFrame(frame | {"y": rng.integers(2, size=n)})


def as_csv(frame, **settings):
    return frame.to_csv(index=False, **settings).encode()


def text_of(answer):
    return unescape(re.sub(r"<[^>]+>", " ", answer.text))


def test_from_a_file_to_a_released_table(page, tmp_path):
    """The officer's way; the release writes a folder that `check` accepts, once."""
    work = page.work("people.csv", as_csv(people()))
    assert "900 rows, 5 columns" in text_of(page.get(f"{work}/table"))
    assert "Choose the sensitive column first" in text_of(page.get(f"{work}/columns"))
    found = page.post(f"{work}/columns", {"role sex": "sensitive", "role y": "label", "do": "look"})
    assert "P(y = 1)" in found.text
    assert "start <= end" in text_of(found), "a rule that every row keeps"
    form = {"role sex": "sensitive", "role y": "label", "rules found": json.dumps(["start <= end"]), "do": "next"}
    target = page.post(f"{work}/columns", form | {"rule start <= end": "on"})
    assert target.url.path.endswith("/target")
    assert "cells of similar people" in target.text
    assert page.post(f"{work}/target", {"target": "0.3", "quick": "on"}).url.path.endswith("/sharing")
    ended = page.shared(work)
    assert ended["state"] == "done", ended
    assert "certifying" in [stage["text"] for stage in ended["stages"]]
    result = page.get(f"{work}/result")
    assert "Nothing has been released yet" in result.text
    assert "True in every shared row: start <= end." in text_of(result)
    run = re.search(r'name="run" value="(\d+)"', result.text)[1]
    folder = tmp_path / "out"
    release = {"run": run, "folder": str(folder), "issuer": "Ulm", "purpose": "teaching", "recipient": "schools"}
    assert f"released into {folder}" in text_of(page.post(f"{work}/release", release))
    checked = ff.check(folder)
    assert checked
    assert (checked.certificate.about.issuer, checked.certificate.about.recipient) == ("Ulm", "schools")
    assert f"{folder}/shared.csv, release 1 of its rows" in text_of(page.get("/releases"))
    again = page.post(f"{work}/release", release | {"folder": str(tmp_path / "other")})
    assert again.status_code == 400
    assert not (tmp_path / "other").exists()


def test_its_certificate_is_that_of_share(page, tmp_path, monkeypatch):
    """On the same table and with the same key; keys are random otherwise."""
    from fairflows.encoder import base, rows

    for module in (base, rows):
        monkeypatch.setattr(module, "new_key", lambda: base.Key(bytes(32)))
    work = page.work("people.csv", as_csv(people()))
    page.post(f"{work}/columns", {"role sex": "sensitive", "role y": "label"})
    page.post(f"{work}/target", {"target": "0.3", "quick": "on"})
    page.shared(work)
    by_page = next(iter(page.desk.works.values())).run.shared.certificate
    (tmp_path / "people.csv").write_bytes(as_csv(people()))
    table = Table.read(tmp_path / "people.csv", sensitive="sex", label="y")
    assert by_page.statements == share(table, target=0.3, rules=["start <= end"], quick=True).certificate.statements


def test_all_problems_at_once_with_their_remedies(page):
    """A gap in the group, names, a copy of the group: each with buttons, and the buttons do what they say."""
    frame = people()
    frame.loc[:99, "sex"] = None
    frame.loc[:99, "x"] += 5
    frame = frame.assign(name=[f"n {i}" for i in range(900)], copy=frame["sex"].fillna("f"), id=np.arange(900) * 7)
    work = page.work("people.csv", as_csv(frame))
    roles = {"role sex": "sensitive"}
    found = page.post(f"{work}/columns", roles)
    said = text_of(found)
    assert "sex is unknown in 100 rows (11.1 %)" in said
    assert re.search(r"These rows differ from the others: x is (4.\d+|5.\d+) on average", said)
    assert "Leave name out" in said
    assert "copy (" in said
    assert "id names the person" in said
    assert re.search(r'value="next" disabled', found.text)
    for button in ("Leave these rows out", "Leave name out", "id names the person", "Leave copy out"):
        change = re.search(rf'value="([^"]*)">{re.escape(button)}<', found.text)
        assert change, button
        roles |= dict(
            re.findall(r'<select name="(role [^"]*)"[^>]*>(?:(?!</select>).)*value="(\w+)" selected', found.text, re.S)
        )
        found = page.post(f"{work}/columns", roles | {"do": unescape(change[1])})
    assert not re.search(r'value="next" disabled', found.text), text_of(found)
    kept = next(iter(page.desk.works.values()))
    assert kept.roles == {"sex": "sensitive", "name": "out", "id": "person", "copy": "out"}
    assert kept.missing_group == "drop"


def test_a_german_file_and_one_that_is_read_wrongly(page):
    work = page.work("leute.csv", as_csv(people(), sep=";", decimal=","))
    read = text_of(page.get(f"{work}/table"))
    assert "900 rows, 5 columns" in read
    assert "leute.csv: read as fields separated by ';'" in read
    work = page.work("leute.csv", "größe,wert\n1.5,2\n".encode("cp1252"))
    assert "is not UTF-8 text" in text_of(page.get(f"{work}/table"))
    assert "1 rows, 2 columns" in text_of(page.post(f"{work}/table", {"encoding": "cp1252"}))


def test_a_result_is_dropped_when_the_question_changes(page):
    """So that no tab releases the result of other settings."""
    work = page.work("people.csv", as_csv(people()))
    page.post(f"{work}/columns", {"role sex": "sensitive"})
    page.post(f"{work}/target", {"target": "0.3", "quick": "on"})
    page.shared(work)
    run = re.search(r'name="run" value="(\d+)"', page.get(f"{work}/result").text)[1]
    page.post(f"{work}/columns", {"role sex": "sensitive", "role x": "out"})
    assert page.get(f"{work}/result").status_code == 400
    assert page.post(f"{work}/release", {"run": run, "folder": "/tmp/never"}).status_code == 400


def test_no_tab_releases_what_another_tab_has_shared_since(page, tmp_path):
    """The result in the first tab has a number that no later result has."""
    work = page.work("people.csv", as_csv(people()))
    page.post(f"{work}/columns", {"role sex": "sensitive"})
    runs = []
    for target in ("0.3", "0.25"):
        page.post(f"{work}/target", {"target": target, "quick": "on"})
        page.shared(work)
        runs.append(re.search(r'name="run" value="(\d+)"', page.get(f"{work}/result").text)[1])
    answer = page.post(f"{work}/release", {"run": runs[0], "folder": str(tmp_path / "out")})
    assert answer.status_code == 400
    assert "The result has changed since this page was shown" in answer.text
    assert not (tmp_path / "out").exists()
    assert page.post(f"{work}/release", {"run": runs[1], "folder": str(tmp_path / "o\0ut")}).status_code == 400
    assert page.post(f"{work}/release", {"run": runs[1], "folder": str(tmp_path / "out")}).status_code == 200
    assert json.loads((tmp_path / "out" / "certificate.json").read_text())["target"] == 0.25


def test_two_tables_are_not_mixed_up(page):
    one, other = (page.work(f"{seed}.csv", as_csv(people(600, seed))) for seed in (1, 2))
    page.post(f"{one}/columns", {"role sex": "sensitive"})
    assert "Choose the sensitive column first" in text_of(page.get(f"{other}/columns"))
    assert "2.csv" in page.get(f"{other}/columns").text


@pytest.mark.filterwarnings("ignore:.* tasks? ha.* been successfully executed")
def test_a_run_is_cancelled(page):
    work = page.work("people.csv", as_csv(people(3000)))
    page.post(f"{work}/columns", {"role sex": "sensitive"})
    page.post(f"{work}/target", {"target": "0.3"})
    page.post(f"{work}/cancel")
    assert page.shared(work) | {"stages": []} == {
        "state": "failed", "stages": [], "part": None, "error": "Cancelled. Nothing was written."
    }  # fmt: skip


def test_a_column_whose_name_has_two_lines_takes_a_role(page):
    """A browser sends the end of a line as two characters."""
    work = page.work("a.csv", as_csv(people().rename(columns={"sex": "sex\nof person"})))
    page.post(f"{work}/columns", {"role sex\r\nof person": "sensitive"})
    assert next(iter(page.desk.works.values())).roles == {"sex\nof person": "sensitive"}


def test_what_came_from_data_is_escaped(page, tmp_path):
    frame = people().rename(columns={"x": EVIL}).assign(**{"k": EVIL})
    frame["sex"] = frame["sex"].replace("f", EVIL)
    work = page.work(f"{EVIL}.csv", as_csv(frame))
    roles = {"role sex": "sensitive"}
    pages = [page.get(f"{work}/table"), page.post(f"{work}/columns", roles), page.get(f"{work}/target"), page.get("/")]
    page.post(f"{work}/target", {"target": "0.3", "quick": "on"})
    assert page.shared(work)["state"] == "done"
    pages.append(page.get(f"{work}/result"))
    for answer in pages:
        assert answer.status_code == 200
        assert EVIL not in answer.text
    assert sum("&lt;script&gt;" in answer.text for answer in pages) == 5


def test_pairs_of_columns_real_beside_shared(page):
    work = page.work("people.csv", as_csv(people()))
    page.post(f"{work}/columns", {"role sex": "sensitive", "role y": "label"})
    page.post(f"{work}/target", {"target": "0.3", "quick": "on"})
    page.shared(work)
    shown = page.get(f"{work}/result?x=x&y=y").text
    table = re.search(r'<table class="pair">.*?</table>', shown, re.S)[0]
    cells = re.findall(r"<td>([\d.]+) \| ([\d.]+)<svg", table)
    assert len(cells) == 8 * 2
    for side in (0, 1):
        assert sum(float(cell[side]) for cell in cells) == pytest.approx(100, abs=1)
    assert float(cells[0][0]) == pytest.approx(
        100 * ((people()["x"] < people()["x"].quantile(1 / 8)) & (people()["y"] == 0)).mean(), abs=0.2
    )


def test_a_pair_with_dates_has_ranges_of_days(page):
    """Dates of a file and shared dates may count in different units; a gap is in no range."""
    days = pd.Series(pd.date_range("2001-02-03", periods=80)).astype("datetime64[us]")
    (of_real, of_shared), names = _levels(days, pd.concat([days, pd.Series([pd.NaT])]).astype("datetime64[ns]"))
    assert names[:2] == ["from 2001-02-03", "from 2001-02-12"]
    assert np.bincount(of_real).tolist() == [10] * 8
    assert of_shared.tolist() == [*of_real, -1]


def test_it_checks_a_certificate(page, tmp_path):
    frame = people()
    share(Table(frame, sensitive="sex"), target=0.3, quick=True).save(tmp_path / "out")
    certificate, table = ((tmp_path / "out" / name).read_bytes() for name in ("certificate.json", "shared.csv"))
    where = page.get("/check").url.path.split("/")[-1]
    page.upload("certificate.json", certificate, where)
    page.upload("shared.csv", table, where)
    said = text_of(page.get(f"/check/{where}"))
    assert "All checks passed" in said
    assert "This table: a person who looks at one of its 900 rows" in said, "what the certificate states"
    page.upload("shared.csv", table.replace(b"\n", b"1\n", 2), where)
    said = text_of(page.get(f"/check/{where}"))
    assert "Do not rely on this certificate" in said
    assert "This table:" not in said
    page.upload("certificate.json", b"{}", where)
    assert "not a certificate" in text_of(page.get(f"/check/{where}"))


def test_a_run_that_has_said_nothing_yet_has_no_stages():
    from fairflows.app.running import Run

    assert Run(1).to_dict()["stages"] == []


def test_a_bug_shows_a_page_with_the_policy(page, monkeypatch):
    monkeypatch.setattr("fairflows.app.server.recorded_releases", lambda: 1 / 0)
    page.client._transport.raise_server_exceptions = False
    answer = page.get("/releases")
    assert answer.status_code == 500
    assert "A bug in fairflows" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_sheet_and_dates_are_chosen_by_a_click(page, tmp_path):
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "book.xlsx") as book:
        pd.DataFrame({"note": ["x"]}).to_excel(book, sheet_name="Notes", index=False)
        people(5).to_excel(book, sheet_name="People", index=False)
    work = page.work("book.xlsx", (tmp_path / "book.xlsx").read_bytes())
    assert "1 rows, 1 columns" in text_of(page.get(f"{work}/table"))
    assert "5 rows, 5 columns" in text_of(page.post(f"{work}/table", {"sheet": "People"}))
    rng = np.random.default_rng(0)
    days = pd.to_datetime([f"{y}-{m}-{d}" for y, m, d in rng.integers((1970, 1, 1), (2000, 13, 13), (900, 3))])
    work = page.work("a.csv", as_csv(people().assign(born=days.strftime("%d/%m/%Y"))))  # or months first
    found = page.post(f"{work}/columns", {"role sex": "sensitive"})
    assert "born holds dates such as 12/31/2026" in text_of(found)
    change = re.search(r'value="([^"]*)">born holds dates such as 31/12/2026<', found.text)
    found = page.post(f"{work}/columns", {"role sex": "sensitive", "do": unescape(change[1])})
    assert "born holds dates such as" not in text_of(found)
    kept = next(work for work in page.desk.works.values() if work.name == "a.csv")
    assert (kept.frame["born"] == days).all()
    assert kept.roles == {"sex": "sensitive"}


def test_a_sensitive_number_is_cut(page):
    rng = np.random.default_rng(0)
    frame = people().assign(age=rng.integers(18, 90, 900), twice=lambda t: 2 * t["start"] + 1)
    work = page.work("a.csv", as_csv(frame))
    found = page.post(f"{work}/columns", {"role age": "sensitive"})
    said = text_of(found)
    assert re.search("age holds numbers with 72 different values, .* such as the median. The smallest", said)
    assert "--groups" not in said
    assert said.count("age holds numbers") == 1
    change = re.search(r'value="([^"]*)">Cut age at [\d.]+<', found.text)
    found = page.post(f"{work}/columns", {"role age": "sensitive", "do": unescape(change[1])})
    assert not re.search(r'value="next" disabled', found.text)
    found = page.post(f"{work}/columns", {"role age": "sensitive", "cuts age": "35, 60"})
    assert "because they follow from other columns: twice = 1 + 2 · start." in page.get(f"{work}/follows").json()
    assert next(iter(page.desk.works.values())).table().groups == ["18–34", "35–59", "60–89"] or text_of(found)
    assert page.post(f"{work}/columns", {"role age": "sensitive", "cuts age": "x"}).status_code == 400


def test_two_persons_are_a_finding_that_can_be_mended(page):
    """The screen still shows, so that one of the two can get another role."""
    work = page.work("a.csv", as_csv(people().assign(who=range(900), other=range(900))))
    roles = {"role sex": "sensitive", "role who": "person", "role other": "person"}
    found = page.post(f"{work}/columns", roles)
    assert found.status_code == 200
    assert "One column has the role person; who and other are chosen." in text_of(found)
    assert re.search(r'value="next" disabled', found.text)
    found = page.post(f"{work}/columns", roles | {"role other": "out"})
    assert not re.search(r'value="next" disabled', found.text)


def test_persons_of_several_groups_are_a_finding_that_can_be_mended(page):
    """The screen still shows, so that the person can be another column."""
    work = page.work("a.csv", as_csv(people().assign(who=lambda t: t.index // 2)))
    found = page.post(f"{work}/columns", {"role sex": "sensitive", "role who": "person"})
    assert found.status_code == 200
    assert re.search(r"The sensitive attribute must be the same in all rows of a person; \d+ of 450", text_of(found))
    assert re.search(r'value="next" disabled', found.text)
    found = page.post(f"{work}/columns", {"role sex": "sensitive", "role who": "out"})
    assert not re.search(r'value="next" disabled', found.text)


def test_groups_that_are_too_small_are_mended_before_the_target(page):
    """A group of four allows no two cells: the finding stops, and its button merges the group."""
    frame = people().assign(land=lambda t: np.where(t.index < 4, "c", np.where(t.index % 3, "a", "b")))
    frame.loc[4:8, "land"] = "d"
    work = page.work("a.csv", as_csv(frame))
    found = page.post(f"{work}/columns", {"role land": "sensitive"})
    assert re.search(r'value="next" disabled', found.text)
    change = re.search(r'value="([^"]*)">Merge groups under [\d,]+ persons<', found.text)
    assert change, text_of(found)
    found = page.post(f"{work}/columns", {"role land": "sensitive", "do": unescape(change[1])})
    assert "are one group, 'other', of 306 persons" in text_of(found)
    assert not re.search(r'value="next" disabled', found.text)


def test_the_best_for_the_label_is_said_before_anything_is_shared(page):
    frame = people()
    frame["y"] = (frame["x"] + (frame["sex"] == "f") > 0.5).astype(int)
    work = page.work("a.csv", as_csv(frame))
    page.post(f"{work}/columns", {"role sex": "sensitive", "role y": "label"})
    said = [page.get(f"{work}/plan?target={target}").json() for target in (0.02, 0.3)]
    found = [
        float(re.search(r"any table within this target could give is right for about ([\d.]+) %", each[-1])[1])
        for each in said
    ]
    assert 50 < found[0] <= found[1] < 100


def test_it_watches_later_persons(page, tmp_path):
    share(Table(people(), sensitive="sex", label="y"), target=0.3, quick=True).save(tmp_path / "out")
    assert str(tmp_path / "out") in text_of(page.get("/watch"))
    name = re.search(r"/watch/(\w+)\"", page.get("/watch").text)[1]
    assert "Nobody was counted yet." in text_of(page.get(f"/watch/{name}"))
    later = people(400, seed=1)
    for day, part in (("2026-10-01", later[:200]), ("2026-10-08", later[200:])):
        where = f"/{page.token}/upload?watch={name}&day={day}"
        answer = page.client.post(where, content=as_csv(part), headers={"x-name": "later.csv"})
        assert answer.status_code == 200, answer.text
    shown = page.get(f"/watch/{name}")
    assert "400 persons, since 2026-10-01" in text_of(shown)
    assert "Nothing that was counted speaks against the certificate." in text_of(shown)
    assert shown.text.count("<polyline") == 1
    assert (tmp_path / "out" / "watch.json").is_file()
    assert list(page.desk.folder.iterdir()) == [], "no later file is kept"
    where = f"/{page.token}/upload?watch={name}"
    answer = page.client.post(where, content=b"a,b\n1,2\n", headers={"x-name": "other.csv"})
    assert answer.status_code == 400
    assert str(page.desk.folder) not in answer.text
    assert page.get("/watch/0123456789abcdef").status_code == 404


def test_the_command_needs_the_extra(monkeypatch, tmp_path):
    import sys

    from fairflows.cli.main import page as command

    monkeypatch.setitem(sys.modules, "starlette", None)
    for name in [name for name in sys.modules if name.startswith(("starlette.", "fairflows.app"))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(DataError, match=r"pip install 'fairflows\[app\]'"):
        command()

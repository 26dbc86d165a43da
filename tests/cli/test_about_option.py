"""--about: what the issuer states is read before the work, and stands in every file that leaves."""

import json

import pandas as pd
import pytest
from known_tables import people

STATED = """
issuer = "Office of Statistics"
contact = "data@office.example"
purpose = "teaching"
recipient = "students, who hold no other table of these persons"
valid_until = 2027-12-31
population = {period = "2024", place = "Ulm", frame = "the register of residents"}
"""


@pytest.fixture
def words(tmp_path):
    people(900)[["age", "town", "sex", "person"]].to_csv(tmp_path / "loans.csv", index=False)
    share = ["share", tmp_path / "loans.csv", "--sensitive", "sex", "--id", "person", "--target", "0.4", "--quick"]
    return [*share, "--about", tmp_path / "about.toml", "-o", tmp_path / "out"]


def test_every_file_that_leaves_says_it(run, words, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "about.toml").write_text(STATED, encoding="utf-8")
    run(*words, ends=0)
    about = json.loads((out / "certificate.json").read_text())["about"]
    assert about["population"] == {"period": "2024", "place": "Ulm", "frame": "the register of residents"}
    assert about["valid_until"] == "2027-12-31"
    for name in ("certificate.json", "report.html", "report-public.html", "card.md", "croissant.json", "spdx.json"):
        text = (out / name).read_text(encoding="utf-8")
        for part in (
            "Office of Statistics",
            "data@office.example",
            "teaching",
            "students, who hold",
            "2027-12-31",
            "Ulm",
        ):
            assert part in text, (name, part)
    run("check", out, ends=0)
    run("verify", out, tmp_path / "loans.csv", ends=0)
    assert "Office of Statistics" not in (out / "shared.csv").read_text()
    certificate = (out / "certificate.json").read_text().replace("teaching", "advertising")
    (out / "certificate.json").write_text(certificate, encoding="utf-8")
    assert "The seal is broken" in run("verify", out, tmp_path / "loans.csv", ends=1)[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("issuer = Office", "about.toml: is not TOML: "),
        (
            'publisher = "Office"',
            "about.toml: the file has no field 'publisher'. It may state issuer, contact, purpose",
        ),
        (
            'valid_until = "next year"',
            "valid_until must be a day such as 2027-12-31, or 'until refuted'; got 'next year'",
        ),
        ("purpose = 3", "about.toml: the file cannot state purpose = 3: expected `str`, got `int`."),
        (None, "about.toml: there is no such file."),
    ],
)
def test_a_wrong_file_is_refused_before_the_work_and_nothing_is_written(run, words, tmp_path, text, message):
    if text is not None:
        (tmp_path / "about.toml").write_text(text, encoding="utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = run(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_certificate_whose_last_day_is_over_fails(run, words, tmp_path):
    out = tmp_path / "out"
    (tmp_path / "about.toml").write_text('valid_until = "2020-01-31"', encoding="utf-8")
    run(*words, ends=0)
    assert "FAILED   validity" in run("check", out, ends=1)[1]
    assert len(pd.read_csv(out / "shared.csv")) == 900

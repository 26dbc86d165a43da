"""What an issuer states about a release: read from TOML or refused, written, sealed, printed and read again."""

import numpy as np
import pytest

from fairflows import Certificate, DataError, Release, Table, certify, check, verify
from fairflows.certificate.about import About, Population

STATED = """
issuer = "Office of Statistics"
contact = "data@office.example"
purpose = "teaching"
recipient = "students, who hold nothing else about these persons"
valid_until = 2027-12-31

[population]
period = "2024"
place = "Ulm"
frame = "the register of residents"
"""

ABOUT = About(
    issuer="Office of Statistics",
    contact="data@office.example",
    purpose="teaching",
    recipient="students, who hold nothing else about these persons",
    valid_until="2027-12-31",
    population=Population(period="2024", place="Ulm", frame="the register of residents"),
)


def file_of(text, folder):
    path = folder / "about.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_every_field_is_read(tmp_path):
    assert About.read(file_of(STATED, tmp_path)) == ABOUT
    assert About.read(file_of(STATED.replace("2027-12-31", '"until refuted"'), tmp_path)).valid_until == "until refuted"
    assert About.read(file_of("", tmp_path)) == About()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("purpose = teaching", r"about\.toml: is not TOML: .*line 1"),
        ('purpose = "a"\npurpose = "b"', "is not TOML: Cannot overwrite a value"),
        (b"purpose = '\xff'", "not UTF-8 text"),
        ('publisher = "Office"', "the file has no field 'publisher'. It may state issuer, contact, purpose, recipient"),
        ('[population]\nplanet = "Mars"', "the file has no field 'population.planet'"),
        ("purpose = 7", r"cannot state purpose = 7: expected `str`, got `int`"),
        ("population = 'Ulm'", r"cannot state population = 'Ulm': expected `object`, got `str`"),
        ("[population]\nplace = ['Ulm']", r"cannot state population.place = \['Ulm'\]: expected `str`, got `array`"),
        ("[population]\nperiod = 2024", r"cannot state population.period = 2024: expected `str`, got `int`"),
        ("valid_until = 2027", r"cannot state valid_until = 2027: expected `str`, got `int`"),
        ("valid_until = '2027-02-30'", "valid_until must be a day such as 2027-12-31, or 'until refuted'; got '2027-0"),
        ("valid_until = 'soon'", "valid_until must be a day such as 2027-12-31, or 'until refuted'; got 'soon'"),
        ("valid_until = ''", "valid_until must be a day such as 2027-12-31, or 'until refuted'; got ''"),
        ("valid_until = 2027-12-31T10:00:00", "valid_until must be a day such as 2027-12-31, .*; got '2027-12-31T10"),
        (
            "valid_until = '20271231'",
            "valid_until must be a day such as 2027-12-31, or 'until refuted'; got '20271231'",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_field_rule_and_what_came(text, message, tmp_path):
    with pytest.raises(DataError, match=message) as error:
        About.read(file_of(text, tmp_path))
    assert "about.toml" in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        About.read(tmp_path / "about.toml")


def test_what_is_stated_in_python_is_checked_too():
    with pytest.raises(DataError, match="valid_until must be a day such as 2027-12-31"):
        About(valid_until="31.12.2027")


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=600).round(2), "sex": rng.choice(["f", "m"], 600), "who": range(600)}
    table = Table(rows, sensitive="sex", identifier="who")
    release = Release(n_cells=2, output="cell").fit(table)
    return release, table, certify(release, table, about=ABOUT)


def test_a_certificate_states_it_and_prints_it(made, tmp_path):
    release, table, certificate = made
    assert certificate.about == ABOUT
    read = Certificate.from_json(certificate.to_json())
    assert read.about == ABOUT
    assert verify(read, release, table)
    said = repr(certificate)
    for line in (
        "issuer",
        "Office of Statistics",
        "contact",
        "teaching",
        "students",
        "2024, Ulm, the register",
        "2027",
    ):
        assert line in said
    assert "purpose" not in repr(certify(release, table)), "what is not stated is not printed"
    (tmp_path / "certificate.json").write_text(certificate.to_json(), encoding="utf-8")
    assert check(tmp_path)


def test_it_is_no_part_of_what_was_counted(made):
    """Another purpose is another certificate, and the bounds are the same."""
    release, table, certificate = made
    other = certify(release, table, about=About(purpose="research"))
    assert other.statements == certificate.statements
    assert other.seal != certificate.seal

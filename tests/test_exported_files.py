"""What `share` writes for other tools says what the file holds: drawn rows, or a person's own cell."""

import json

import numpy as np
import pandas as pd
import pytest

import fairflows as ff

pytestmark = pytest.mark.filterwarnings("ignore:.* of these rows are of persons of the table that was released")


def people(n: int = 1500) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sex, age = rng.choice(["f", "m"], n), rng.integers(18, 80, n)
    return pd.DataFrame(
        {"age": age, "town": rng.choice(["Ulm", "Bonn"], n), "sex": sex, "who": [f"p{i}" for i in range(n)]}
    )


@pytest.mark.parametrize("output", ["row", "cell"])
def test_only_drawn_rows_are_called_synthetic(output, tmp_path):
    table = ff.Table(people(), sensitive="sex", identifier="who")
    ff.share(table, target=0.3, quick=True, output=output).save(tmp_path / "out")
    for name in ("card.md", "croissant.json", "spdx.json", "report-public.html"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        says_drawn = [word for word in ("synthetic", "drawn from", "random draw", "nobody's own") if word in text]
        assert bool(says_drawn) == (output == "row"), (name, says_drawn)
    limits = json.loads((tmp_path / "out" / "croissant.json").read_text(encoding="utf-8"))["rai:dataLimitations"]
    assert ("one person" in limits[0]) == (output == "cell")


def test_nothing_is_promised_of_a_table_beyond_its_target(tmp_path):
    """The sentences of a failed release are no praise: it may tell the group."""
    table = ff.Table(people(), sensitive="sex", identifier="who")
    release = ff.Release(n_cells=16, output="cell").fit(table)
    certificate = ff.certify(release, table, target=0.001)
    assert certificate.status == "NOT_MET"
    text = json.dumps(ff.exports.croissant(certificate, release.transform(table), "shared.csv", "0" * 64))
    assert "not reveal" not in text
    assert "nearly the same share" not in text


def test_the_card_counts_the_rows_of_the_file(tmp_path):
    """Of a file that is larger than memory only a sample is in the hands of `share`."""
    whole = tmp_path / "whole.csv"
    people().to_csv(whole, index=False)
    sample = ff.Table.read(whole, sensitive="sex", identifier="who").take(range(900))
    ff.share(sample, target=0.3, quick=True).save(tmp_path / "out", whole=whole)
    assert "1,500 rows drawn from cells" in (tmp_path / "out" / "card.md").read_text(encoding="utf-8")

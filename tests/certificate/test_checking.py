"""check: a receiver who has only public files accepts the true ones, and notices what was changed in them."""

import json
import re
import stat
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.certificate.checking import difference_from_counts
from fairflows.certificate.counted import CountedStatement
from fairflows.certificate.file_list import file_sha256, new_key

SMALL = set(range(1, 10))


def people(seed, n=3000, groups=2, most=1):
    """Persons with up to `most` rows, an attribute that shifts x, and a label."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n), rng.integers(1, most + 1, n))
    a = rng.integers(groups, size=n)[who]
    x = rng.normal(size=len(who)) + 0.2 * a
    frame = pd.DataFrame({"x": x.round(3), "z": rng.normal(size=len(who)).round(3), "a": a})
    frame = frame.assign(y=(x + rng.normal(size=len(who)) > 0).astype(int), who=[f"{seed}-{i}" for i in who])
    return ff.Table(frame, sensitive="a", label="y", identifier="who")


def released(model, rows, certificate, folder, name="shared.csv"):
    """What a producer hands over: the cells of the counted persons, and the certificate that names the file."""
    folder.mkdir()
    model.transform(rows).to_csv(folder / name, index=False)
    path = folder / name
    counted = not difference_from_counts(path, certificate)
    certificate = certificate.with_file(name, file_sha256(path), counted=counted)
    (folder / "certificate.json").write_text(certificate.to_json(), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model():
    return ff.CellRelease(None, 8).fit(people(0))


@pytest.fixture(scope="module")
def certificate(model):
    return ff.certify(model, people(1), target=0.3)


@pytest.fixture
def public(model, certificate, tmp_path):
    """The public files, which a test may change."""
    return released(model, people(1), certificate, tmp_path / "public")


def check(folder, file="shared.csv", **settings):
    return ff.check(folder / "certificate.json", None if file is None else folder / file, **settings)


def edit(folder, change):
    """Change the certificate as a forger would: the text is the only thing that he has."""
    path = folder / "certificate.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def failed(checked):
    return {result.what for result in checked.results if result.verdict == "FAILED"}


def test_the_true_files_are_accepted(public):
    checked = check(public)
    assert checked
    assert checked.conclusion.startswith("All checks passed")
    found = {result.what: result.verdict for result in checked.results}
    assert found["file"] == found["histogram"] == found["bound, a random row"] == "ok"
    assert "counted in their true groups" in repr(checked), "what cannot be known is said"
    assert "Rows that the model was fitted to are not covered" in repr(checked)
    assert not checked.certificate.unchecked
    assert check(public, None)
    json.dumps(checked.to_dict())


def test_what_is_read_is_not_checked_until_it_is(public):
    text = (public / "certificate.json").read_text(encoding="utf-8")
    assert repr(ff.Certificate.from_json(text)).startswith("NOT CHECKED")
    assert repr(check(public).certificate).startswith("CERTIFIED")
    edit(public, lambda values: values.update(cell_upper=0.001))
    assert repr(check(public).certificate).startswith("NOT CHECKED")


def test_a_changed_count(public):
    def change(values):
        values["counts"][0]["folds"][0]["counts"]["0"][2] += 1

    edit(public, change)
    assert failed(check(public)) >= {"counts"}


def test_a_changed_count_that_keeps_all_sums(public):
    def change(values):
        counts = values["counts"][0]["folds"][0]["counts"]["0"]
        counts[0], counts[1] = counts[0] + 40, counts[1] - 40

    edit(public, change)
    assert failed(check(public)) & {"counts", "bound, a random row"}


def test_a_forgery_whose_bounds_follow_from_other_counts_does_not_fit_the_file(public):
    """Counts that look alike in both groups, everything computed anew: only the histogram shows it."""

    def change(values):
        certificate = ff.Certificate.from_json(json.dumps(values))
        n = certificate.n
        k = len(certificate.counts[0].folds[0].cells)
        counts = {g: tuple([n[g] // k] * (k - 1) + [n[g] - n[g] // k * (k - 1)]) for g in n}
        fold = replace(certificate.counts[0].folds[0], counts=counts)
        statement = CountedStatement("row", None, (fold,))
        values["counts"] = json.loads(json.dumps([statement], default=vars))
        values["cell_odds_upper"], values["spent"] = {}, {"cells": fold.delta}
        values["cell_delta"], values["cell_upper"] = statement.observed, statement.upper
        values["cell_accuracy_upper"] = statement.accuracy_upper()

    edit(public, change)
    checked = check(public)
    assert failed(checked) == {"histogram"}
    assert checked.conclusion == "Do not rely on this certificate: 1 check failed."


@pytest.mark.parametrize("name", ["cell_upper", "cell_accuracy_upper", "cell_delta"])
def test_a_changed_bound(public, name):
    edit(public, lambda values: values.update({name: values[name] - 0.001}))
    assert len(failed(check(public))) == 1
    assert "follows from the counts; it says" in repr(check(public))


def test_a_changed_bound_given_the_label(public):
    edit(public, lambda values: values["cell_odds_upper"].update({"1": 0.01}))
    assert failed(check(public)) == {"bound, a random row given label 1"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"status": "NOT_MET"}, "status"),
        ({"look": 2}, "error"),
        ({"delta": 0.5}, "error"),
        ({"delta": 5.0}, "error"),
        ({"counts": []}, "counts"),
        ({"n": {"0": 9000, "1": 9000}}, "counts"),
        ({"cell_odds_upper": {}}, "counts"),
        ({"priors": [0.7, 0.7]}, "error"),
    ],
)
def test_a_changed_statement(public, change, what):
    edit(public, lambda values: values.update(change))
    assert what in failed(check(public))


@pytest.mark.parametrize(
    "change",
    [
        {"radius": 0.001}, {"eta": 0.5}, {"delta": 0.9}, {"share": 0.5}, {"cells": [0, 1]}, {"n": {"0": 1}},
        {"merged": {"0": -5, "1": 5}}, {"cells": [0, 1, 2, 3, 4, 5, 6, 8]}, {"cells": [-1, 1, 2, 3, 4, 5, 6, 7]},
    ],
)  # fmt: skip
def test_changed_inputs_of_the_formula(public, change):
    edit(public, lambda values: values["counts"][0]["folds"][0].update(change))
    assert failed(check(public))


def test_no_folds(public):
    edit(public, lambda values: values["counts"][0].update(folds=[]))
    assert failed(check(public)) == {"counts"}


def test_a_swapped_file(model, public):
    model.transform(people(2)).to_csv(public / "shared.csv", index=False)
    assert failed(check(public)) == {"file", "histogram"}
    (public / "shared.csv").rename(public / "other.csv")
    checked = check(public, "other.csv")
    assert not checked, "under another name nobody vouches for it"
    assert "only claimed" in repr(checked)


def test_a_file_with_ten_rows_removed(public):
    rows = (public / "shared.csv").read_text().splitlines(keepends=True)
    (public / "shared.csv").write_text("".join(rows[:-10]))
    checked = check(public)
    assert failed(checked) == {"file", "histogram"}
    assert "2,990 rows; 3,000 persons were counted" in repr(checked)


def test_the_certificate_of_another_model(public, tmp_path):
    other = ff.CellRelease(None, 4).fit(people(3))
    theirs = released(other, people(4), ff.certify(other, people(4)), tmp_path / "theirs")
    (theirs / "certificate.json").replace(public / "certificate.json")
    assert failed(check(public)) >= {"file", "histogram"}


def test_a_file_under_another_name_is_recognised(public):
    (public / "shared.csv").rename(public / "received.csv")
    assert check(public, "received.csv")


def test_a_later_file_takes_the_list_of_the_producer(model, public):
    model.transform(people(5)).to_csv(public / "later.csv", index=False)
    assert "only claimed" in repr(check(public, "later.csv"))
    ff.sign(public / "certificate.json", [public / "later.csv"])
    checked = check(public, "later.csv")
    assert checked
    assert "list, which is not signed" in repr(checked)
    edit(public, lambda values: values.update(sensitive="b"))
    assert failed(check(public, "later.csv")) >= {"list"}, "the list was of another certificate"


class TestSigned:
    @pytest.fixture(autouse=True)
    @staticmethod
    def _needs_cryptography():
        pytest.importorskip("cryptography")

    @pytest.fixture
    @staticmethod
    def key(tmp_path):
        new_key(tmp_path / "producer.pem")
        return tmp_path / "producer.pem"

    @pytest.fixture
    @staticmethod
    def signed(public, key):
        ff.sign(public / "certificate.json", [public / "shared.csv"], key=key)
        return public

    def test_the_private_key_is_private(self, key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert "PRIVATE" not in key.with_suffix(".public.pem").read_text()
        with pytest.raises(ff.DataError, match="a key is not replaced"):
            new_key(key)

    def test_a_true_signature_is_accepted(self, signed, key):
        assert check(signed, public_key=key.with_suffix(".public.pem"))
        pretty = json.dumps(json.loads((signed / "certificate.json").read_text()), indent=7, sort_keys=True)
        (signed / "certificate.json").write_text(pretty)
        assert check(signed, public_key=key.with_suffix(".public.pem")), "spaces and order are not signed"

    def test_the_key_of_somebody_else(self, signed, tmp_path):
        other = new_key(tmp_path / "other.pem")
        checked = check(signed, public_key=other)
        assert failed(checked) >= {"signature"}
        assert "forged or edited" in repr(checked)

    def test_an_edited_list(self, signed, key):
        path = signed / "certificate.files.json"
        path.write_text(path.read_text().replace("shared.csv", "salaries.csv"))
        assert failed(check(signed, public_key=key.with_suffix(".public.pem"))) == {"signature"}

    def test_an_edited_certificate(self, signed, key):
        edit(signed, lambda values: values.update(seed=5))
        assert "list" in failed(check(signed, public_key=key.with_suffix(".public.pem")))

    def test_a_signature_that_is_none(self, signed, key):
        path = signed / "certificate.files.json"
        path.write_text(re.sub(r'"signature": "\w+"', '"signature": "kiss"', path.read_text()))
        assert failed(check(signed, public_key=key.with_suffix(".public.pem"))) == {"signature"}

    def test_asked_for_a_signature_where_there_is_none(self, public, key):
        assert failed(check(public, public_key=key.with_suffix(".public.pem"))) == {"signature"}

    def test_a_signed_list_is_added_to_with_the_same_key_only(self, signed, key, tmp_path):
        (signed / "more.csv").write_text("cell\n1\n")
        with pytest.raises(ff.DataError, match="is signed: give the private key"):
            ff.sign(signed / "certificate.json", [signed / "more.csv"])
        new_key(tmp_path / "other.pem")
        with pytest.raises(ff.DataError, match="signed with another key"):
            ff.sign(signed / "certificate.json", [signed / "more.csv"], key=tmp_path / "other.pem")
        listed = ff.sign(signed / "certificate.json", [signed / "more.csv"], key=key)
        assert list(listed.files) == ["shared.csv", "more.csv"]
        assert check(signed, "more.csv", public_key=key.with_suffix(".public.pem"))
        (signed / "more.csv").write_text("cell\n2\n")
        with pytest.raises(ff.DataError, match="another file called 'more.csv'"):
            ff.sign(signed / "certificate.json", [signed / "more.csv"], key=key)

    def test_files_that_are_no_keys(self, signed, key):
        with pytest.raises(ff.DataError, match="no public Ed25519 key"):
            check(signed, public_key=signed / "certificate.json")
        with pytest.raises(ff.DataError, match="no private Ed25519 key"):
            ff.sign(signed / "certificate.json", key=key.with_suffix(".public.pem"))


def test_without_cryptography_it_says_what_to_install(tmp_path, monkeypatch):
    def none(name):
        raise ImportError(name)

    monkeypatch.setattr("fairflows.certificate.file_list.import_module", none)
    with pytest.raises(ff.DataError, match=r"pip install 'fairflows\[sign\]'"):
        new_key(tmp_path / "producer.pem")
    assert not (tmp_path / "producer.pem").exists()


def test_bad_input(public, tmp_path):
    with pytest.raises(ff.DataError, match="no such file"):
        ff.check(tmp_path / "nothing.json")
    with pytest.raises(ff.DataError, match="no such file"):
        check(public, "nothing.csv")
    with pytest.raises(ff.DataError, match="not a certificate"):
        ff.check(public / "shared.csv")
    (public / "certificate.files.json").write_text('{"format": 1}')
    with pytest.raises(ff.DataError, match="not a list of released files: a file list must state 'certificate'"):
        check(public)


@pytest.mark.parametrize(
    "rows", [people(1, 400), people(1, 6000, groups=4), people(1, 4000, most=3)], ids=["few", "four groups", "persons"]
)
@pytest.mark.parametrize("settings", [{}, {"released": ["cell", "label"]}, {"priors": "unequal"}], ids=str)
def test_every_kind_of_certificate_can_be_checked(rows, settings, tmp_path):
    groups = len(rows.groups)
    if settings.get("priors"):
        shares = np.arange(1, groups + 1)
        settings = {"priors": (shares / shares.sum()).tolist()}
    most = int(rows.persons.rows_each().max())
    model = ff.CellRelease(None, 16).fit(people(0, groups=groups, most=most))
    certificate = ff.certify(model, rows, **settings)
    (tmp_path / "certificate.json").write_text(certificate.to_json(), encoding="utf-8")
    checked = check(tmp_path, None)
    assert checked, repr(checked)
    assert ("bound, a random person" in repr(checked)) == (most > 1)
    for statement in certificate.counts:
        for fold in statement.folds:
            printed = [count for counts in fold.counts.values() for count in counts]
            assert not SMALL & set(printed)
    headline = certificate.counts[0].folds[0]
    assert not SMALL & set(headline.merged.values())


def test_two_folds_are_checked_as_one_statement(model, certificate, tmp_path):
    """As two models give them that share the work: each fold at half of δ, with half of the weight."""
    fold = certificate.counts[0].folds[0]
    half = replace(fold, share=0.5, delta=fold.delta / 2)
    half = replace(half, radius=half.computed_radius)
    other = replace(
        half, cells=tuple((certificate.n_cells or 0) + cell for cell in half.cells)
    )  # cells are told apart by fold
    statement = CountedStatement("row", None, (half, other))
    both = replace(
        certificate,
        counts=(statement,),
        n=statement.n,
        n_cells=2 * (certificate.n_cells or 0),
        cell_odds_upper={},
        cell_delta=statement.observed,
        cell_upper=statement.upper,
        cell_accuracy_upper=statement.accuracy_upper(),
    )
    (tmp_path / "certificate.json").write_text(both.to_json(), encoding="utf-8")
    assert check(tmp_path, None), repr(check(tmp_path, None))
    assert statement.upper > certificate.cell_upper
    all_weight_on_one = (
        replace(half, share=1.0),
        replace(other, share=0.0),
    )  # one that counts nothing could hold anything
    for folds in ((half,), (half, half), all_weight_on_one):
        wrong = replace(both, counts=(CountedStatement("row", None, folds),))
        (tmp_path / "certificate.json").write_text(wrong.to_json(), encoding="utf-8")
        assert failed(check(tmp_path, None)) == {"counts"}


def test_what_is_merged_given_a_label_does_not_follow_from_all_persons(model):
    """All persons less those given one label would tell those given the other."""
    certificate = ff.certify(ff.CellRelease(None, 16).fit(people(0)), people(1, 1500))
    every, *given = (statement.folds[0] for statement in certificate.counts)
    for group in every.n:
        counts = [dict(zip(fold.cells, fold.counts[group], strict=True)) for fold in (every, *given)]
        for cell, count in counts[0].items():
            known = [part.get(cell) for part in counts[1:]]
            hidden = [value is None for value in known]
            if any(hidden) and not all(hidden):
                assert sum(value or 0 for value in known) % 10 == 0, "rounded down: the rest is not told"
            elif not any(hidden):
                assert count - sum(known) == 0 or sum(known) % 10 == 0


@pytest.fixture
def latent(tmp_path):
    """The certificate of a latent, which a test may change."""
    table = ff.load_adult().take(range(3000))
    table.X = table.X[["education", "relationship"]]
    train, _, test = table.split(random_state=0)
    encoder = ff.FairMatching(0.9, density="counts").fit(train)
    (tmp_path / "certificate.json").write_text(ff.certify(encoder, test).to_json(), encoding="utf-8")
    return tmp_path


def test_a_latent_states_nothing_that_counts_could_show(latent):
    checked = check(latent, None)
    assert checked
    assert "certifies nothing about the true distribution" in repr(checked)
    assert checked.conclusion == (
        "All checks passed: nothing is certified of the true distribution. No file was compared."
    )


def test_without_counts_nothing_is_certified(latent):
    """Whoever calls a model-based bound certified must print the counts that show it."""
    edit(latent, lambda values: values.update(status="CERTIFIED"))
    assert failed(check(latent, None)) == {"status"}
    edit(latent, lambda values: values.update(status="MODEL_ONLY", cell_accuracy_upper=0.51))
    assert failed(check(latent, None)) == {"counts"}

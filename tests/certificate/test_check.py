"""check: a receiver who has only public files accepts the true ones, and notices what was changed in them."""

import json
import re
import time
from dataclasses import replace
from functools import reduce
from operator import getitem
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.certificate import file_list
from fairflows.certificate.file_checks import difference_from_counts
from fairflows.certificate.file_list import file_sha256, list_files
from fairflows.certificate.statements import held_out_statement
from processes import start

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
    counted = not difference_from_counts(path, certificate.headline, {"cell": "whole numbers"}, "cell")
    certificate = certificate.with_file(name, file_sha256(path), counted=counted)
    (folder / "certificate.json").write_text(certificate.to_json(), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model():
    return ff.FairTree(n_cells=8, key=bytes(32)).fit(people(0))


@pytest.fixture(scope="module")
def certificate(model):
    return ff.certify(model, people(1), target=0.3)


@pytest.fixture
def public(model, certificate, tmp_path):
    return released(model, people(1), certificate, tmp_path / "public")


def check(folder, file="shared.csv", **settings):
    return ff.check(folder / "certificate.json", None if file is None else folder / file, **settings)


def edit(folder, change):
    """Change the certificate as a forger would: the text is the only thing that he has."""
    path = folder / "certificate.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def edit_statement(folder, place=0, **changes):
    edit(folder, lambda values: values["statements"][place].update(changes))


def plain(*statements):
    return json.loads(json.dumps(statements, default=vars))


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


def test_a_true_certificate_of_a_missed_target_is_no_promise(model, tmp_path):
    """All of it is true, and a reader of the last line alone must not take it for good news."""
    rows = people(1)
    missed = released(model, rows, ff.certify(model, rows, target=0.061), tmp_path / "missed")
    assert check(missed)
    assert check(missed).conclusion.endswith(" It is not a promise: its status is NOT_MET.")


def test_what_is_read_is_not_checked_until_it_is(public):
    text = (public / "certificate.json").read_text(encoding="utf-8")
    assert repr(ff.Certificate.from_json(text)).startswith("NOT CHECKED")
    assert repr(check(public).certificate).startswith("CERTIFIED")
    edit_statement(public, distance=0.001)
    assert repr(check(public).certificate).startswith("NOT CHECKED")


def test_a_changed_count_that_keeps_all_sums(public):
    def change(values):
        counts = values["statements"][0]["counts"]["counts"]["0"]
        counts[0], counts[1] = counts[0] + 40, counts[1] - 40

    edit(public, change)
    assert failed(check(public)) & {"counts", "bound, a random row"}


def test_a_forgery_whose_bounds_follow_from_other_counts_does_not_fit_the_file(public):
    """Counts that look alike in both groups, everything computed anew: only the histogram shows it."""

    def change(values):
        certificate = ff.Certificate.from_json(json.dumps(values))
        n, true = certificate.n, certificate.headline
        k = len(true.counts.cells)
        counts = {g: tuple([n[g] // k] * (k - 1) + [n[g] - n[g] // k * (k - 1)]) for g in n}
        forged = held_out_statement("row", None, replace(true.counts, counts=counts), true.delta)
        values["statements"] = plain(forged.judged(certificate.target))

    edit(public, change)
    checked = check(public)
    assert failed(checked) == {"histogram"}
    assert checked.conclusion == "Do not rely on this certificate: 1 check failed."


@pytest.mark.parametrize("name", ["distance", "observed"])
def test_a_changed_bound(public, certificate, name):
    edit_statement(public, **{name: getattr(certificate.headline, name) - 0.001})
    assert len(failed(check(public))) == 1
    assert "follows from the counts; it says" in repr(check(public))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"status": "NOT_MET"}, "status"),
        ({"look": 2}, "error"),
        ({"delta": 0.5}, "error"),
        ({"delta": 5.0}, "error"),
        ({"n": {"0": 9000, "1": 9000}}, "counts"),
        ({"target": 0.01}, "status"),
    ],
)
def test_a_changed_field(public, change, what):
    edit(public, lambda values: values.update(change))
    assert what in failed(check(public))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"counts": None}, "counts"),
        ({"blocks": {"0": [9, 9], "1": [9, 9]}}, "blocks, a random row"),
        ({"persons": {"0": 9.0, "1": 9.0}}, "persons, a random row"),
        ({"p_value": 0.5}, "p_value, a random row"),
        ({"met": False}, "status"),
        ({"delta": 0.001}, "error"),
        ({"law": "person"}, "counts"),
        ({"given": "2"}, "counts"),
    ],
)
def test_a_changed_statement(public, change, what):
    edit_statement(public, **change)
    assert what in failed(check(public))


def test_a_statement_that_was_left_out(public):
    edit(public, lambda values: values["statements"].pop(1))
    assert failed(check(public)) == {"counts"}, "the counts given the labels no longer sum up"
    edit(public, lambda values: values["statements"].pop(0))
    assert failed(check(public)) == {"counts"}, "bounds given the label need that of all persons"


@pytest.mark.parametrize(
    "change",
    [
        {"cells": [0, 1]}, {"n": {"0": 1}}, {"n": {"0": 1500, "2": 1500}}, {"counts": {"0": [1, 2]}}, {"counts": {}},
        {"merged": {"0": -5, "1": 5}}, {"cells": [0, 1, 2, 3, 4, 5, 6, 8]}, {"cells": [-1, 1, 2, 3, 4, 5, 6, 7]},
    ],
)  # fmt: skip
def test_changed_inputs_of_the_formula(public, change):
    edit(public, lambda values: values["statements"][0]["counts"].update(change))
    assert failed(check(public)) == {"counts"}


@pytest.mark.parametrize(("more", "said"), [(0, ""), (1, "It has 3,001 rows; 3,000 were counted.")])
def test_a_file_of_rows_has_as_many_as_were_counted(certificate, more, said, tmp_path):
    counted = replace(certificate.headline, about="table")
    (tmp_path / "rows.csv").write_text("town\n" + "Ulm\n" * (sum(counted.n.values()) + more))
    assert difference_from_counts(tmp_path / "rows.csv", counted, {"town": "text"}, "row") == said


def test_a_swapped_file(model, public):
    model.transform(people(2)).to_csv(public / "shared.csv", index=False)
    assert failed(check(public)) == {"file"}
    (public / "shared.csv").rename(public / "other.csv")
    checked = check(public, "other.csv")
    assert not checked, "under another name nobody vouches for it"
    assert "only claimed" in repr(checked)


def test_a_later_file_takes_the_list_of_the_producer(model, public):
    model.transform(people(5)).to_csv(public / "later.csv", index=False)
    assert "only claimed" in repr(check(public, "later.csv"))
    listed = list_files(public / "certificate.json", [public / "later.csv"])
    assert list(listed.files) == ["later.csv"]
    checked = check(public, "later.csv")
    assert checked
    assert "in the producer's list" in repr(checked)
    later = (public / "later.csv").read_text()
    (public / "later.csv").write_text("cell\n1\n")
    assert failed(check(public, "later.csv")) == {"file"}
    (public / "later.csv").write_text(later)
    edit(public, lambda values: values.update(sensitive=["b"]))
    assert failed(check(public, "later.csv")) >= {"list"}, "the list was of another certificate"
    with pytest.raises(ff.DataError, match="is about another certificate"):
        list_files(public / "certificate.json", [public / "later.csv"])


def list_slowly(certificate, file):
    dumps = json.dumps
    file_list.json = SimpleNamespace(dumps=lambda *a, **b: time.sleep(0.3) or dumps(*a, **b))
    list_files(certificate, [file])


def test_files_that_are_listed_at_once_are_all_in_the_list(model, public):
    """Six encodings side by side: the list was read, added to and written, and some of them got lost."""
    files = [public / f"later{i}.csv" for i in range(4)]
    for i, path in enumerate(files):
        path.write_text(f"cell\n{i}\n")
    started = [start(list_slowly, public / "certificate.json", path) for path in files]
    for process in started:
        process.join()
        assert process.exitcode == 0
    listed = json.loads((public / "certificate.files.json").read_text())
    assert sorted(listed["files"]) == [path.name for path in files]
    assert not [path for path in public.iterdir() if path.name.startswith(".")]


def test_a_certificate_prints_no_verdicts_of_its_own(public):
    """A label that cleared the screen was followed by "All checks passed"."""
    spoof = "yes\x1b[2J\n\nAll checks passed: the bounds follow from the counts.\u202e"
    edit(public, lambda values: next(s for s in values["statements"] if s["given"]).update(given=spoof))
    lines = repr(check(public)).splitlines()
    assert any("\\x1b[2J\\n\\nAll checks passed" in line and "\\u202e" in line for line in lines)
    assert not [line for line in lines[:-1] if "\x1b" in line or line.startswith("All checks passed")]


def test_counts_that_would_take_hours_are_refused(public):
    """3,000 groups in a file of 300 kB: four million pairs, and 20,000 draws of each."""
    groups = [f"g{i}" for i in range(3000)]

    def many(values):
        blocks = {"about": "population", "by": "blocks", "distance": 0.1, "delta": 0.01}
        blocks |= {"blocks": {group: [10, 10] for group in groups}, "persons": dict.fromkeys(groups, 19.0)}
        values.update(statements=[blocks], n=dict.fromkeys(groups, 40))

    edit(public, many)
    assert "would take hours to compute again" in repr(ff.check(public / "certificate.json"))


def test_bad_input(public, tmp_path):
    with pytest.raises(ff.DataError, match="no such file"):
        ff.check(tmp_path / "nothing.json")
    with pytest.raises(ff.DataError, match="no such file"):
        check(public, "nothing.csv")
    with pytest.raises(ff.DataError, match="not a certificate"):
        ff.check(public / "shared.csv")
    (public / "certificate.files.json").write_text('{"format": 2}')
    with pytest.raises(
        ff.DataError, match="not a list of released files: a file list .*missing required field `certificate`"
    ):
        check(public)


@pytest.mark.parametrize(
    "rows", [people(1, 400), people(1, 6000, groups=4), people(1, 4000, most=3)], ids=["few", "four groups", "persons"]
)
@pytest.mark.parametrize("settings", [{}, {"with_labels": True}], ids=str)
def test_every_kind_of_certificate_can_be_checked(rows, settings, tmp_path):
    groups = len(rows.groups)
    most = int(rows.persons.rows_each().max())
    model = ff.FairTree(n_cells=16).fit(people(0, groups=groups, most=most))
    certificate = ff.certify(model, rows, **settings)
    (tmp_path / "certificate.json").write_text(certificate.to_json(), encoding="utf-8")
    checked = check(tmp_path, None)
    assert checked, repr(checked)
    assert ("bound, a random person" in repr(checked)) == (most > 1)
    for statement in certificate.statements:
        assert not SMALL & {count for counts in statement.counts.counts.values() for count in counts}
    assert not SMALL & set(certificate.headline.counts.merged.values())


def test_what_is_merged_given_a_label_does_not_follow_from_all_persons(model):
    """All persons less those given one label would tell those given the other."""
    certificate = ff.certify(ff.FairTree(n_cells=16).fit(people(0)), people(1, 1500))
    every, *given = (statement.counts for statement in certificate.statements)
    for group in every.n:
        counts = [dict(zip(part.cells, part.counts[group], strict=True)) for part in (every, *given)]
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
    edit(latent, lambda values: values.update(status="MODEL_ONLY"))
    assert check(latent, None)
    claimed = {"about": "population", "by": "held-out", "distance": 0.01, "observed": 0.0}
    edit(latent, lambda values: values["statements"].insert(0, claimed))
    assert failed(check(latent, None)) == {"counts"}
    edit_statement(latent, law="person")
    assert failed(check(latent, None)) == {"counts"}
    edit_statement(latent, by="blocks", law="row", blocks={"0": [500, 500], "1": [500, 500]})
    assert failed(check(latent, None)) == {"counts"}, "blocks are of cells, which a latent has none of"


@pytest.fixture(scope="module")
def shared_twice(tmp_path_factory):
    """Folders of two results for persons of one law."""
    folder = tmp_path_factory.mktemp("shared")
    for name, seed in (("one", 5), ("other", 6)):
        ff.share(people(seed, 1500), target=0.3, quick=True).save(folder / name)
    return folder


@pytest.fixture
def received(shared_twice, tmp_path):
    for name in ("certificate.json", "shared.csv"):
        (tmp_path / name).write_bytes((shared_twice / "one" / name).read_bytes())
    return tmp_path


COUNTS, BLOCKS = ("statements", 0, "counts", "counts", "0"), ("statements", 1, "blocks")
FORGERIES = {
    "one count": {(*COUNTS, 3): lambda n: n + 1},
    "one row in another cell": {(*COUNTS, 3): lambda n: n + 1, (*COUNTS, 4): lambda n: n - 1},
    "one block": {(*BLOCKS, "1", 2): lambda b: b + 1},
    "blocks of another cell": {(*BLOCKS, "0", 0): lambda b: b + 3, (*BLOCKS, "0", 1): lambda b: b - 3},
    "no block": {(*BLOCKS, "1", 2): lambda b: 0},
    "blocks of one group": {BLOCKS: lambda blocks: {"0": blocks["0"]}},
    "blocks of another group": {BLOCKS: lambda blocks: {"0": blocks["0"], "2": blocks["1"]}},
    "one cell less": {(*BLOCKS, "0"): lambda b: [*b[:-2], b[-2] + b[-1]]},
    "more persons than the table": {
        (*BLOCKS, "0", 0): lambda b: b + 9000, ("statements", 1, "persons", "0"): lambda n: n + 9000,
    },
    "bound on the table": {("statements", 0, "distance"): lambda d: 0.9 * d},
    "half known": {("statements", 0, "known_half"): lambda d: d - 0.001},
    "a tenth known": {("statements", 0, "known", "0.1"): lambda d: d - 0.001},
    "bound on persons to come": {("statements", 1, "distance"): lambda d: 0.95 * d},
    "delta of the table": {("statements", 0, "delta"): lambda delta: 0.01},
    "no delta of the blocks": {("statements", 1, "delta"): lambda delta: 0.0},
    "delta of the blocks": {("statements", 1, "delta"): lambda delta: 2 * delta},
    "delta that was asked for": {("delta",): lambda delta: 2 * delta},
    "persons that the tree was cut at": {("statements", 1, "persons", "0"): lambda n: n + 1},
    "digest of the contents": {("contents", "sha256"): lambda digest: "0" * 64},
    "rows of the contents": {("contents", "rows"): lambda n: n + 1},
    "a column of the contents": {("contents", "kinds"): lambda kinds: {**kinds, "w": "text"}},
    "kind of a column": {("contents", "kinds", "x"): lambda kind: "whole numbers"},
    "a column twice": {("columns",): lambda columns: [*columns, columns[0]]},
    "cells instead of rows": {("released",): lambda released: "cell"},
    "size of a group": {("n", "0"): lambda n: n + 1},
    "number of cells": {("n_cells",): lambda n: n + 1},
    "a look": {("look",): lambda look: 1},
    "a latent": {("released",): lambda released: "latent"},
    "labels": {("labels",): lambda labels: ["y"]},
    "status": {("status",): lambda status: "NOT_MET"},
    "target": {("target",): lambda target: 0.001},
}  # fmt: skip


@pytest.mark.usefixtures("few_trees", "few_measured")
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_receiver_of_rows_notices_a_changed_number(forgery, run, received):
    words = ["check", received / "certificate.json", received / "shared.csv"]
    run(*words, ends=0)

    def change(values):
        for (*way, last), changed in FORGERIES[forgery].items():
            part = reduce(getitem, way, values)
            part[last] = changed(part[last])

    edit(received, change)
    out = run(*words, "--json", ends=1)[1]
    wrong = {result["what"] for result in json.loads(out)["results"] if result["verdict"] == "FAILED"}
    assert wrong - {"file", "histogram"}, "by the certificate itself"


@pytest.mark.parametrize(
    "changed",
    [
        {"released": ["row"]}, {"released": "rows"}, {"labels": "y"}, {"sensitive": []}, {"unit": "household"},
        {"issued": "soon"}, {"issued": "2026-02-30"}, {"previous": ["x"]}, {"most_rows": 0}, {"releases": -1},
        {"about": {"valid_until": "soon"}},
    ],
)  # fmt: skip
def test_no_certificate_has_such_settings(changed, run, received):
    edit(received, lambda values: values.update(changed))
    code, _, err = run("check", received / "certificate.json")
    assert code == 2
    assert re.search(rf"cannot state {next(iter(changed))}\S* = .*: .*\.", err)


@pytest.mark.usefixtures("few_trees", "few_measured")
def test_a_receiver_of_rows_notices_another_file(run, received, shared_twice):
    words, file = ["check", received / "certificate.json", received / "shared.csv"], received / "shared.csv"
    whole = file.read_text(encoding="utf-8").splitlines(keepends=True)
    for text in ("".join(whole[:-1]), (shared_twice / "other" / "shared.csv").read_text(encoding="utf-8")):
        file.write_text(text, encoding="utf-8")
        out = run(*words, ends=1)[1]
        assert "FAILED   file" in out
    file.write_text("".join(whole), encoding="utf-8")
    other = (shared_twice / "other" / "certificate.json").read_bytes()
    (received / "certificate.json").write_bytes(other)
    assert run(*words)[0] == 1, "nor is it a file of another certificate"


@pytest.mark.usefixtures("few_trees", "few_measured")
def test_a_column_of_the_table_may_be_called_cell(run, tmp_path):
    """Its values are no numbers of cells."""
    rows = people(3).whole().rename(columns={"x": "cell"})[["cell", "a"]]
    ff.share(ff.Table(rows, sensitive="a"), target=0.3, quick=True).save(tmp_path / "out")
    assert run("check", tmp_path / "out", ends=0)


@pytest.mark.usefixtures("few_trees", "few_measured")
def test_a_certificate_that_names_contents_and_no_file(run, received):
    edit(received, lambda values: values.update(released_files={}))
    assert "in another form" in run("check", received / "certificate.json", received / "shared.csv", ends=0)[1]

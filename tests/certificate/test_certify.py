"""certify and verify: status, refusals, persons, joint releases, reuse, tampering."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.pipeline import make_pipeline

from fairflows import FairMatching, FairTransport, Table, load_adult
from fairflows.attack.target import Target
from fairflows.bounds import (
    cell_upper_bound,
    delta_of_look,
    exact_adversary_accuracy,
    exact_statistical_distance,
    per_label,
    stratified_accuracy_upper_bound,
)
from fairflows.certificate.certifying import certify
from fairflows.certificate.document import Certificate, ContradictionError
from fairflows.certificate.identification import model_hash, secret_of
from fairflows.certificate.verifying import verify
from fairflows.encoder.pipelines import fit_pipeline, transform_table
from fairflows.exceptions import DataError, DataWarning
from fairflows.release.cell_release import CellRelease
from fairflows.table.ledger import Ledger, named_persons


def with_ledger(model, train):
    encoder = model[0] if hasattr(model, "steps") else model
    encoder.ledger_ = Ledger.of(train.X, named_persons(train.X), encoder.key_)
    return model


@pytest.fixture(scope="module")
def adult():
    return load_adult().paper_split()


@pytest.fixture(scope="module")
def fitted(adult):
    train, _, _ = adult
    # The transport is random: a fixed key makes the persons' coins, and so the bounds, the same in every run.
    model = make_pipeline(FairTransport(density="counts", key=bytes(32)), CellRelease(n_cells=8))
    return fit_pipeline(model, train.X, train.y, sensitive_features=train.a)


@pytest.fixture
def model(fitted, adult):
    """The same fitted pipeline with a ledger of its own."""
    return with_ledger(copy.deepcopy(fitted), adult[0])


def attack(model, rows="", **changes):
    """What an audit of the model might have found."""
    found = {"released": ("cell",), "delta": 0.05, "attack_lower": 0.0, "best": "nobody", "density_gap_lower": {}}
    return {**found, "model": model_hash(model, secret_of(model)), "rows": rows, **changes}


def counts_of(model, rows):
    cells = transform_table(model, rows)["cell"].to_numpy()
    group = pd.Index(model[0].groups_).get_indexer(rows.a)
    counts = np.zeros((2, model[-1].n_cells_))
    np.add.at(counts, (group, cells), 1)
    return counts, cells, group


def test_cells_of_transported_adult_are_certified(model, adult):
    test = adult[2]
    certificate = certify(model, test, target=0.05)
    counts, _, _ = counts_of(model, test)
    assert certificate.status == "CERTIFIED"
    assert certificate.cell_upper == pytest.approx(cell_upper_bound(counts, delta_of_look(0.05, 1)))
    assert certificate.cell_accuracy_upper == pytest.approx((1 + certificate.cell_upper) / 2)
    assert certificate.n == {"0": int(counts[0].sum()), "1": int(counts[1].sum())}
    assert certificate.model_upper == exact_statistical_distance(model[0].latent_laws_)
    first = delta_of_look(0.05, 1)
    assert certificate.spent == {"cells": first, "odds": first, "model": 0.0}
    assert certificate.attack_lower is None
    assert verify(certificate, model, test)


def test_equalized_odds_are_bounded_within_labels(model, adult):
    test = adult[2]
    certificate = certify(model, test)
    by_label = {str(y): counts_of(model, test.take((test.y == y).to_numpy()))[0] for y in test.labels}
    assert certificate.cell_odds_upper == pytest.approx(per_label(cell_upper_bound, by_label, delta_of_look(0.05, 1)))


def test_a_latent_is_never_more_than_model_only(adult):
    train, _, test = adult
    encoder = FairTransport(density="counts").fit(train.X, train.y, sensitive_features=train.a)
    certificate = certify(encoder, test, target=0.05)
    assert certificate.status == "MODEL_ONLY"
    assert certificate.released == ("latent",)
    assert certificate.cell_upper is None
    assert certificate.model_upper < 1e-9
    refuted = certify(encoder, test, target=0.05, audit=attack(encoder, released=("latent",), attack_lower=0.02))
    assert refuted.status == "REFUTED"
    assert refuted.density_error_lower == pytest.approx(0.02)


def test_certified_comes_before_refuted(model, adult):
    """Cells are certified on the truth: that the densities are wrong takes nothing from it."""
    certificate = certify(model, adult[2], target=0.05, audit=attack(model, attack_lower=0.01))
    assert certificate.model_upper < 0.01
    assert certificate.status == "CERTIFIED"


@pytest.mark.parametrize(
    ("target", "status"), [(None, "MODEL_ONLY"), (0.5, "MODEL_ONLY"), (0.05, "NOT_MET"), (0.0, "NOT_MET")]
)
def test_status_without_cells(adult, target, status):
    train, _, test = adult
    encoder = FairMatching(gamma=0.0, density="counts").fit(train.X, train.y, sensitive_features=train.a)
    assert 0.05 < exact_statistical_distance(encoder.latent_laws_) < 0.5
    assert certify(encoder, test, target=target).status == status


def test_target_as_an_adversarys_accuracy(model, adult):
    reached = certify(model, adult[2], max_adversary_accuracy=0.53)
    assert reached.status == "CERTIFIED"
    assert reached.cell_accuracy_upper <= 0.53
    model[0].ledger_.looks.clear()
    assert certify(model, adult[2], max_adversary_accuracy=0.515).status == "MODEL_ONLY"
    with pytest.raises(ValueError, match="not both"):
        certify(model, adult[2], target=0.1, max_adversary_accuracy=0.6)


def test_cell_and_label_are_certified_as_a_pair(model, adult):
    """What the label itself tells is in the bound: Adult's labels alone are .20 apart."""
    test = adult[2]
    alone, pair = certify(model, test), certify(model, test, released=["cell", "label"])
    gap = abs(np.subtract(*[(test.y[test.a == a] == 1).mean() for a in test.groups]))
    assert pair.cell_upper > gap > alone.cell_upper
    assert pair.n_cells == 2 * alone.n_cells
    _, cells, group = counts_of(model, test)
    joint = np.zeros((2, 16))
    np.add.at(joint, (group, cells * 2 + test.y.to_numpy()), 1)
    assert pair.cell_upper == pytest.approx(cell_upper_bound(joint, delta_of_look(0.05, 2)))
    assert pair.model_upper is None, "no density says how z and y go together"
    assert verify(pair, model, test)


def test_next_to_the_latent_a_cell_certifies_nothing(model, adult):
    certificate = certify(model, adult[2], released=["latent", "cell"])
    assert certificate.cell_upper is None
    assert certificate.model_upper is not None


def test_randomised_response_is_certified_by_soft_counts(adult, fitted):
    train, _, test = adult
    Z = transform_table(fitted[0], train)
    plain, noisy = (
        certify(with_ledger(make_pipeline(copy.deepcopy(fitted[0]), release.fit(Z, train.y)), train), test)
        for release in (CellRelease(n_cells=32), CellRelease(n_cells=32, randomise=0.5))
    )
    assert noisy.cell_upper == pytest.approx(plain.cell_upper / 2), "distance and radius both shrink by 1 − randomise"
    assert noisy.model_upper == pytest.approx(plain.model_upper / 2)
    assert any("secret" in sentence for sentence in noisy.assumptions)


def test_persons_not_rows_are_counted(model, adult):
    """Three identical rows a person are one person's evidence."""
    test = adult[2].take(np.arange(3000))
    once = Table(test.X.assign(a=test.a, y=test.y, who=range(3000)), sensitive="a", label="y", identifier="who")
    thrice = Table(
        pd.concat([test.X.assign(a=test.a, y=test.y, who=range(3000))] * 3).sample(frac=1, random_state=0),
        sensitive="a", label="y", identifier="who",
    )  # fmt: skip
    del model[0].ledger_
    one, three = certify(model, once), certify(model, thrice)
    assert sum(three.n.values()) == 3000
    assert three.cell_upper == pytest.approx(one.cell_upper)
    assert any("One random row" in sentence for sentence in three.assumptions)


def test_a_persons_row_is_chosen_by_seed_and_not_by_order(model, adult):
    test = adult[2].take(np.arange(4000))
    frame = test.X.assign(a=test.a, y=test.y, who=np.arange(4000) // 2)
    del model[0].ledger_
    orders = [frame, frame.iloc[::-1]]
    tables = [Table(order, sensitive="a", label="y", identifier="who") for order in orders]
    first, second = (certify(model, table) for table in tables)
    assert first == second
    assert certify(model, tables[0], random_state=1).cell_upper != first.cell_upper


def test_a_group_too_small_for_the_target_is_refused_with_the_number_needed(model, adult):
    few = adult[2].take(np.arange(400))
    with pytest.raises(DataError, match=r"too small for the target Δ ≤ 0.05.*need ([\d,]+) of 0, ([\d,]+) of 1"):
        certify(model, few, target=0.05)
    assert certify(model, few, target=0.3).status == "CERTIFIED"


def test_training_rows_are_refused(model, adult):
    train, validation, test = adult
    with pytest.raises(DataError, match="fitted to, or chosen by, 500 of the 500 rows"):
        certify(model, train.take(np.arange(500)))
    mixed = Table(
        pd.concat([test.X, train.X.iloc[:40]]).rename_axis("row"),
        sensitive=np.concatenate([test.a, train.a.iloc[:40]]),
    )
    with pytest.raises(DataError, match="chosen by, 40 of"):
        certify(model, mixed)
    certify(model, validation)
    model[0].ledger_.use(validation.X, named_persons(validation.X))
    with pytest.raises(DataError, match="chosen by"):
        certify(model, validation)


def test_named_persons_are_recognised_in_any_row(adult):
    train = adult[0].take(np.arange(3000))
    frame = train.X.assign(a=train.a, y=train.y, who=[f"p{i}" for i in range(3000)])
    table = Table(frame, sensitive="a", label="y", identifier="who")
    encoder = FairTransport(density="counts").fit(table.X, table.y, sensitive_features=table.a)
    with_ledger(encoder, table)
    strangers = frame.assign(who=[f"q{i}" for i in range(3000)])
    assert certify(encoder, Table(strangers, sensitive="a", label="y", identifier="who")).status == "MODEL_ONLY"
    strangers.loc[strangers.index[5], "who"] = "p77"
    with pytest.raises(DataError, match="1 of the 3,000 persons"):
        certify(encoder, Table(strangers, sensitive="a", label="y", identifier="who"))


def test_each_look_at_the_same_rows_spends_its_share(model, adult):
    test = adult[2]
    looks = [certify(model, test) for _ in range(3)]
    assert [c.look for c in looks] == [1, 2, 3]
    assert [c.spent["cells"] for c in looks] == [delta_of_look(0.05, j) for j in (1, 2, 3)]
    assert looks[0].cell_upper < looks[1].cell_upper < looks[2].cell_upper
    assert certify(model, adult[1]).look == 1, "other rows"
    assert all(verify(certificate, model, test) for certificate in looks)


def test_a_second_model_on_the_same_persons_warns(model, adult):
    train, _, test = adult
    certify(model, test)
    other = make_pipeline(FairTransport(0.5, density="counts"), CellRelease(n_cells=8))
    fit_pipeline(other, train.X, train.y, sensitive_features=train.a)
    other[0].key_, other[0].ledger_ = model[0].key_, model[0].ledger_  # two models of one frontier
    with pytest.warns(DataWarning, match="two models' encodings of one person"):
        assert certify(other, test).look == 2


def test_an_attack_above_the_certified_bound_on_the_same_rows_is_a_bug(model, adult):
    test = adult[2]
    certificate = certify(model, test)
    impossible = attack(model, certificate.rows, attack_lower=certificate.cell_upper + 0.2)
    with pytest.raises(ContradictionError, match="same rows.*bug"):
        certify(model, test, audit=impossible)
    with pytest.warns(DataWarning, match="on other rows"):
        certify(model, test, audit={**impossible, "rows": "others"})


def test_an_attack_above_the_bound_for_random_cells_may_be_bad_luck(model, adult):
    """The bound is about the expected cells, the attack saw those that were drawn."""
    train, _, test = adult
    Z = transform_table(model[0], train)
    noisy = make_pipeline(model[0], CellRelease(n_cells=8, randomise=0.9).fit(Z, train.y))
    certificate = certify(noisy, test)
    found = attack(noisy, certificate.rows, attack_lower=certificate.cell_upper + 0.2)
    with pytest.warns(DataWarning, match="random cells"):
        certify(noisy, test, audit=found)


def test_other_rows_of_the_same_persons_are_other_rows(model, adult):
    """Another seed draws another row of a person: the same table was attacked, but not the same rows."""
    test = adult[2].take(np.arange(4000))
    frame = test.X.assign(a=test.a, y=test.y, who=np.arange(4000) // 2)
    table = Table(frame, sensitive="a", label="y", identifier="who")
    drawn = [Target.of(model, adult[0], table, None, seed, quick=True) for seed in (0, 1)]
    del model[0].ledger_
    upper = certify(model, table).cell_upper
    impossible = [attack(model, target.rows, attack_lower=upper + 0.2) for target in drawn]
    with pytest.raises(ContradictionError, match="same rows"):
        certify(model, table, audit=impossible[0])
    with pytest.warns(DataWarning, match="on other rows"):
        certify(model, table, audit=impossible[1])


def test_an_attack_on_another_release_is_refused(model, adult):
    with pytest.raises(ValueError, match="must have attacked what is released"):
        certify(model, adult[2], audit=attack(model, released=("latent",)))


def test_an_attack_on_another_model_is_refused(model, adult):
    train, _, test = adult
    Z = transform_table(model[0], train)
    other = make_pipeline(model[0], CellRelease(n_cells=2).fit(Z, train.y))
    with pytest.raises(ValueError, match="it attacked another one"):
        certify(model, test, audit=attack(other))
    with pytest.raises(ValueError, match="it attacked an array"):
        certify(model, test, audit={**attack(model), "model": ""})
    assert not model[0].ledger_.looks, "what was refused has not looked"


def test_somebody_vouches_for_the_densities(adult):
    train, _, test = adult
    encoder = FairMatching(gamma=0.5, density="counts").fit(train.X, train.y, sensitive_features=train.a)
    certificate = certify(encoder, test, density_error=[0.01, 0.02])
    assert certificate.vouched_upper == pytest.approx(certificate.model_upper + 0.03)
    assert certificate.density_error == (0.01, 0.02)
    assert verify(certificate, encoder, test)
    with pytest.raises(ValueError, match="one for each of 2 groups; got .0.01, 0.02, 0.03."):
        certify(encoder, test, density_error=[0.01, 0.02, 0.03])
    with pytest.raises(ValueError, match="density_error adds to a model-based bound, and there is none"):
        certify(encoder, test, density_error=0.01, released=["latent", "label"])


def test_anything_with_cells_can_be_certified(adult):
    """A representation learner of somebody else, as one step: no densities, no ledger."""

    class Halves:
        n_cells_ = 2

        def cells(self, X):
            return (X["education"].astype(str) > "H").to_numpy().astype(int)

        def transform(self, X, sensitive_features=None):
            return pd.DataFrame({"cell": self.cells(X)})

        def get_params(self):
            return {}

    certificate = certify(Halves(), adult[2], target=0.3)
    assert certificate.status == "CERTIFIED"
    assert certificate.model_upper is None
    assert any("keeps no ledger" in sentence for sentence in certificate.assumptions)
    assert certificate.seal == "", "without a key, anybody could make one"
    assert any("no seal" in sentence for sentence in certificate.assumptions)
    found = verify(certificate, Halves(), adult[2])
    assert found
    assert "not sealed" in repr(found)


class ThirdOfALine:
    """Cuts the line in three; the groups 0, 1 and 2 lie on it one after the other."""

    n_cells_ = 3

    def cells(self, X):
        return np.searchsorted([-0.5, 0.5], X["x"].to_numpy())


def test_three_groups():
    """The worst pair's distance for Δ, and the accuracy of guessing one of three for a target accuracy."""
    a = np.arange(9000) % 3
    x = np.random.default_rng(0).normal(0.2 * (a - 1))
    rows = Table({"x": x, "a": a}, sensitive="a", kinds={"x": "continuous"})
    certificate = certify(ThirdOfALine(), rows, max_adversary_accuracy=0.45)
    laws = np.diff(norm.cdf([-np.inf, -0.5, 0.5, np.inf] - 0.2 * np.array([[-1], [0], [1]])), axis=1)
    delta, accuracy = exact_statistical_distance(laws), exact_adversary_accuracy(laws)
    assert delta < certificate.cell_upper < delta + 0.1
    assert accuracy < certificate.cell_accuracy_upper < accuracy + 0.05
    assert certificate.status == "CERTIFIED"
    assert certify(ThirdOfALine(), rows, max_adversary_accuracy=0.4).status == "NOT_MET"
    assert certificate.n == {"0": 3000, "1": 3000, "2": 3000}
    first = delta_of_look(0.05, 1)
    assert certificate.spent == {"cells": first, "accuracy": first}, "of three groups, Δ does not bound the accuracy"


def test_three_groups_too_small_for_an_accuracy():
    a = np.arange(300) % 3
    rows = Table({"x": np.zeros(300) + a, "a": a}, sensitive="a", kinds={"x": "continuous"})
    with pytest.raises(DataError, match=r"at most 35 %.*100 of 0.*need ([\d,]+) of 0") as refused:
        certify(ThirdOfALine(), rows, max_adversary_accuracy=0.35)
    n = int(str(refused.value).split("need ")[1].split(" of")[0].replace(",", ""))
    needed = [stratified_accuracy_upper_bound([[m]] * 3, delta_of_look(0.05, 1)) for m in (n - 1, n)]
    assert needed[0] > 0.35 >= needed[1]


def test_priors_are_where_the_adversary_works(model, adult):
    test = adult[2]
    counts, _, _ = counts_of(model, test)
    priors, first = (0.9, 0.1), delta_of_look(0.05, 1)
    certificate = certify(model, test, priors=priors, max_adversary_accuracy=0.92)
    assert certificate.status == "CERTIFIED"
    assert certificate.cell_accuracy_upper == pytest.approx(stratified_accuracy_upper_bound(counts, first, priors))
    assert certificate.model_accuracy_upper == pytest.approx(0.9)
    assert certificate.cell_upper == pytest.approx(cell_upper_bound(counts, first)), "Δ knows no priors"
    assert certificate.spent["accuracy"] == first
    assert verify(certificate, model, test)
    assert verify(replace(certificate, priors=(0.5, 0.5)), model, test).differences[0].what == "seal"
    text = repr(certificate)
    assert "blind 90.0 %" in text
    assert f"adversary {100 * certificate.cell_accuracy_upper:.1f} %" in text


def test_what_the_bounds_say_about_classifiers(model, adult):
    certificate = certify(model, adult[2])
    derived = certificate.derived(largest_rate=0.5)
    said = derived["true distribution"]
    assert said["parity"] == certificate.cell_upper
    assert said["adversary accuracy"] == certificate.cell_accuracy_upper
    assert said["equalized odds"] == max(certificate.cell_odds_upper.values())
    assert said["four-fifths from"] == pytest.approx(5 * certificate.cell_upper)
    assert said["selection ratio"] == pytest.approx(1 - certificate.cell_upper / 0.5)
    assert derived["model"]["parity"] == certificate.model_upper
    assert "selection ratio" not in certificate.derived()["model"]


def test_the_bound_misses_no_more_often_than_delta():
    """By simulation, with the share of δ that a first look may spend: it would miss that often at the most."""
    rng = np.random.default_rng(0)
    truth = norm.cdf(-0.4) - norm.cdf(-0.6)
    misses, runs = 0, 200
    for _ in range(runs):
        x = rng.normal(0.1 * np.repeat([-1, 1], 300))
        rows = Table({"x": x, "a": np.repeat([0, 1], 300)}, sensitive="a", kinds={"x": "continuous"})
        misses += certify(ThirdOfALine(), rows, delta=0.3).cell_upper < truth
    assert misses / runs <= delta_of_look(0.3, 1) + 3 * np.sqrt(0.3 * 0.7 / runs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delta": 0}, "delta must be"),
        ({"target": 1.5}, r"target must be a distance in \[0, 1\]; got 1.5"),
        ({"max_adversary_accuracy": 50}, "max_adversary_accuracy must be"),
        ({"max_adversary_accuracy": 0.4}, "at least that of a blind guess, 0.5"),
        ({"max_adversary_accuracy": 0.5}, "above that of a blind guess"),
        ({"target": 0.0}, "no number of persons proves Δ = 0"),
        ({"priors": [0.5, 0.4]}, "priors must be non-negative and sum to 1"),
        ({"estimator": "guess"}, "estimator must be 'betting' or 'sign'; got 'guess'"),
        ({"n_draws": 0}, "n_draws must be a whole number of at least 1; got 0"),
        ({"random_state": None}, "random_state must be a whole number of at least 0; got None"),
        ({"released": ["prediction"]}, "released must name cell, latent, label; got 'prediction'"),
        ({"density": "mixture"}, "density is for encoders of continuous tables"),
    ],
)
def test_wrong_arguments_are_named(model, adult, arguments, message):
    with pytest.raises(ValueError, match=message):
        certify(model, adult[2], **arguments)
    assert not model[0].ledger_.looks, "what was refused has not looked"


def test_rows_must_be_a_table(model, adult):
    with pytest.raises(DataError, match="rows must be a Table.*got DataFrame"):
        certify(model, adult[2].X)


class TestVerify:
    @pytest.fixture
    def certificate(self, model, adult):
        return certify(model, adult[2], target=0.05, audit=attack(model, attack_lower=0.001))

    def whats(self, *arguments):
        return {difference.what for difference in verify(*arguments).differences}

    def test_what_was_written_and_read_holds(self, certificate, model, adult):
        assert verify(Certificate.from_json(certificate.to_json()), model, adult[2])
        shuffled = adult[2].take(np.random.default_rng(0).permutation(len(adult[2])))
        assert verify(certificate, model, shuffled)

    @pytest.mark.parametrize("name", ["cell_upper", "cell_delta", "model_upper"])
    def test_a_changed_bound_is_named(self, certificate, model, adult, name):
        changed = replace(certificate, **{name: getattr(certificate, name) / 2 + 0.001})
        assert self.whats(changed, model, adult[2]) == {"seal", name}

    def test_a_changed_status_or_attack_breaks_the_seal(self, certificate, model, adult):
        refuted = replace(certificate, status="REFUTED")
        assert self.whats(refuted, model, adult[2]) == {"seal", "status"}
        assert "seal" in self.whats(replace(certificate, attack_lower=0.0), model, adult[2])

    def test_other_rows(self, certificate, model, adult):
        assert self.whats(certificate, model, adult[1]) == {"rows"}
        one_less = adult[2].take(np.arange(1, len(adult[2])))
        assert "rows" in self.whats(certificate, model, one_less)

    def test_another_model(self, certificate, model, adult):
        train, _, test = adult
        other = make_pipeline(FairTransport(0.9, density="counts", key=model[0].key_), CellRelease(n_cells=8))
        fit_pipeline(other, train.X, train.y, sensitive_features=train.a)
        other[0].ledger_ = model[0].ledger_
        assert self.whats(certificate, other, test) == {"model"}
        Z = transform_table(model[0], train)
        other_cells = make_pipeline(model[0], CellRelease(n_cells=9).fit(Z, train.y))
        assert self.whats(certificate, other_cells, test) == {"model"}

    def test_another_model_with_another_key(self, certificate, model, adult):
        """Under another key nothing but the model can be judged: neither the rows nor the seal is to blame."""
        train, _, test = adult
        other = make_pipeline(FairTransport(density="counts", key=b"k" * 32), CellRelease(n_cells=8))
        fit_pipeline(other, train.X, train.y, sensitive_features=train.a)
        assert self.whats(certificate, other, test) == {"model"}
        assert "no more can be said" in repr(verify(certificate, other, test))

    def test_the_encoder_without_its_cells(self, certificate, model, adult):
        assert self.whats(certificate, model[0], adult[2]) == {"model"}

    def test_rows_that_the_model_cannot_read(self, certificate, model, adult):
        test = adult[2]
        strange = Table(test.X.assign(a=test.a + 1, y=test.y), sensitive="a", label="y")
        lacking = Table(test.X.iloc[:, 1:].assign(a=test.a, y=test.y), sensitive="a", label="y")
        assert self.whats(certificate, model, strange) == {"rows"}
        assert self.whats(certificate, model, lacking) == {"rows"}

    def test_a_model_that_is_not_the_one_named(self, certificate, model, adult):
        assert self.whats(replace(certificate, model="0" * 32), model, adult[2]) == {"model", "seal"}

    @pytest.mark.parametrize("changes", [{"delta": 7.0}, {"look": 0}, {"released": ("cellar",)}, {"n_draws": 0}])
    def test_settings_that_no_certificate_has(self, certificate, model, adult, changes):
        assert {"seal", "settings"} <= self.whats(replace(certificate, **changes), model, adult[2])

    def test_a_seal_made_with_another_key(self, certificate, model, adult):
        forged = replace(certificate, attack_lower=0.0).sealed(b"another key")
        assert "seal" in self.whats(forged, model, adult[2])

    def test_reused_rows(self, certificate, model, adult):
        """The best of several looks, dressed up as the first."""
        again = certify(model, adult[2], target=0.05)
        fresh = copy.deepcopy(model)
        fresh[0].ledger_.looks.clear()
        best = certify(fresh, adult[2], target=0.05, random_state=3)
        assert best.look == 1
        assert self.whats(best, model, adult[2]) == {"look"}
        assert "counts 2 certificates" in repr(verify(best, model, adult[2]))
        assert verify(again, model, adult[2])

    def test_training_rows(self, certificate, model, adult):
        found = verify(certificate, model, adult[0].take(np.arange(5000)))
        assert "fitted to" in repr(found)
        assert not found

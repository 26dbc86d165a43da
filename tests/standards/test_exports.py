"""What `share` writes for other tools, read by these tools: in-toto, Croissant, SPDX; signed and verified as DSSE.

`make test-standards` installs them. Without them these tests are skipped.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fairflows as ff
from fairflows.certificate.about import About, Population
from fairflows.certificate.file_list import file_sha256


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Everything that a release of a table with odd names writes."""
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame(
        {
            "a |b*": rng.normal(size=n).round(2),
            "<b>town</b>": rng.choice(["Bonn", "Ulm"], n),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, n), unit="D"),
            "is_paid": rng.random(n) < 0.4,
            "sex": rng.choice(["f", "m"], n),
            "label": rng.integers(0, 2, n),
        }
    )
    out = tmp_path_factory.mktemp("shared") / "out"
    about = About(
        issuer="Office <of> Statistics",
        contact="data@office.example",
        purpose="teaching",
        recipient="students | staff",
        population=Population(period="2024-01-01/2024-12-31", place="Ulm", frame="the register of residents"),
        valid_until="2027-12-31",
    )
    ff.share(ff.Table(frame, sensitive="sex", label="label"), about=about, quick=True).save(out)
    return out


def test_the_statement_is_an_in_toto_statement_of_these_files(folder):
    statement = pytest.importorskip("in_toto_attestation.v1.statement", reason="make test-standards installs it")
    from google.protobuf import json_format
    from in_toto_attestation.v1 import statement_pb2

    text = (folder / "attestation.json").read_text()
    parsed = json_format.Parse(text, statement_pb2.Statement())
    statement.Statement.copy_from_pb(parsed).validate()
    names = {subject.name: subject.digest["sha256"] for subject in parsed.subject}
    assert names == {name: file_sha256(folder / name) for name in ("shared.csv", "report-public.html")}
    assert json.loads(text)["predicateType"].endswith("/certificate/v4")
    assert json.loads(text)["predicate"] == json.loads((folder / "certificate.json").read_text())
    broken = json.loads(text) | {"_type": "something else"}
    with pytest.raises(ValueError, match="type"):
        statement.Statement.copy_from_pb(json_format.ParseDict(broken, statement_pb2.Statement())).validate()


def test_it_is_signed_and_verified_by_other_tools(folder):
    """As a DSSE envelope, which is what cosign and in-toto sign."""
    pytest.importorskip("securesystemslib", reason="make test-standards installs it")
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import CryptoSigner

    signer = CryptoSigner.generate_ed25519()
    envelope = Envelope((folder / "attestation.json").read_bytes(), "application/vnd.in-toto+json", {})
    envelope.sign(signer)
    assert envelope.verify([signer.public_key], 1)
    forged = Envelope(envelope.payload.replace(b"CERTIFIED", b"certified"), envelope.payload_type, envelope.signatures)
    with pytest.raises(VerificationError):
        forged.verify([signer.public_key], 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of rdflib
def test_croissant_metadata_are_valid_and_read_the_rows(folder, tmp_path):
    mlc = pytest.importorskip("mlcroissant", reason="make test-standards installs it")
    dataset = mlc.Dataset(jsonld=str(folder / "croissant.json"))
    assert not dataset.metadata.issues.errors
    shared = pd.read_csv(folder / "shared.csv")
    assert len(list(dataset.records("rows"))) == len(shared)
    assert {field.name for field in dataset.metadata.record_sets[0].fields} == set(shared)
    (creator,), (publisher,) = dataset.metadata.creators, dataset.metadata.publisher
    assert creator.name == publisher.name == "Office <of> Statistics"
    assert creator.email == "data@office.example"
    assert dataset.metadata.data_use_cases == ["teaching"]
    assert dataset.metadata.data_collection == "the register of residents"
    assert dataset.metadata.data_release_maintenance_plan == "The certificate is valid until 2027-12-31."
    plain = json.loads((folder / "croissant.json").read_text())
    assert (plain["temporalCoverage"], plain["spatialCoverage"]) == ("2024-01-01/2024-12-31", "Ulm")
    assert (plain["audience"]["audienceType"], plain["expires"]) == ("students | staff", "2027-12-31")
    assert plain["datePublished"] == json.loads((folder / "certificate.json").read_text())["issued"]
    for name in ("croissant.json", "shared.csv"):
        shutil.copy(folder / name, tmp_path)
    with (tmp_path / "shared.csv").open("a") as file:
        file.write("\n")
    with pytest.raises(Exception, match=r"Download\(shared\.csv\)"):  # whose SHA-256 is another
        list(mlc.Dataset(jsonld=str(tmp_path / "croissant.json")).records("rows"))


def test_the_spdx_package_is_one(folder):
    model = pytest.importorskip("spdx_python_model", reason="make test-standards installs it").v3_0_1
    found = model.SHACLObjectSet()
    with (folder / "spdx.json").open() as file:
        model.JSONLDDeserializer().read(file, found)
    (package,) = found.foreach_type(model.dataset_DatasetPackage)
    assert package.verifiedUsing[0].hashValue == file_sha256(folder / "shared.csv")
    assert not found.missing_ids
    assert (package.suppliedBy.name, package.suppliedBy.description) == (
        "Office <of> Statistics",
        "data@office.example",
    )
    assert package.dataset_intendedUse == "teaching; for students | staff"
    assert package.dataset_dataCollectionProcess == "2024-01-01/2024-12-31, Ulm, the register of residents"
    assert package.validUntilTime.date().isoformat() == "2027-12-31"
    assert package.releaseTime.date().isoformat() == json.loads((folder / "certificate.json").read_text())["issued"]


def test_what_is_not_stated_is_in_no_field(tmp_path):
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=600).round(2), "sex": rng.choice(["f", "m"], 600)}
    ff.share(ff.Table(rows, sensitive="sex"), quick=True).save(tmp_path / "out")
    croissant, spdx = (json.loads((tmp_path / "out" / name).read_text()) for name in ("croissant.json", "spdx.json"))
    assert not {"creator", "publisher", "audience", "temporalCoverage", "spatialCoverage", "expires"} & set(croissant)
    assert croissant["rai:dataReleaseMaintenancePlan"] == "The certificate is valid until refuted."
    assert not {"suppliedBy", "validUntilTime", "dataset_intendedUse"} & set(spdx["@graph"][-1])
    assert len(spdx["@graph"]) == 3


def test_the_card_shows_names_as_they_are(folder):
    card = (folder / "card.md").read_text()
    assert "&lt;b&gt;town&lt;/b&gt;" in card
    assert "<b>" not in card
    assert r"a \|b\*" in card
    assert "one of its 600 rows" in card
    assert "made to hide sex by fairflows" in card
    for line in (
        "- issuer: Office &lt;of&gt; Statistics",
        r"- recipient: students \| staff",
        "- valid until: 2027-12-31",
    ):
        assert line in card.splitlines()
    assert "- population: 2024-01-01/2024-12-31, Ulm, the register of residents" in card

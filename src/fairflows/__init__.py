"""Share a table without giving away a sensitive attribute, with a certificate of what it still reveals.

The public names below are loaded on first use (PEP 562), so that ``import fairflows`` and ``fairflows --help`` start
at once and do not import torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "CellCodec": "fairflows.codec.cell_codec",
    "CellRelease": "fairflows.release.cell_release",
    "Certificate": "fairflows.certificate.document",
    "Codec": "fairflows.codec.product",
    "DataError": "fairflows.exceptions",
    "DataWarning": "fairflows.exceptions",
    "FairFlow": "fairflows.encoder.fair_flow",
    "FairMatching": "fairflows.encoder.fair_matching",
    "FairTransport": "fairflows.encoder.fair_transport",
    "Report": "fairflows.reporting",
    "Table": "fairflows.table.table",
    "attack_lower_bound": "fairflows.bounds.lower_bounds",
    "audit": "fairflows.attack.auditing",
    "betting_upper_bound": "fairflows.bounds.betting",
    "cell_upper_bound": "fairflows.bounds.counts",
    "certify": "fairflows.certificate.certifying",
    "decode_file": "fairflows.stream.files",
    "describe_datasets": "fairflows.paper.catalogue",
    "encode_file": "fairflows.stream.files",
    "fit_pipeline": "fairflows.encoder.pipelines",
    "frontier": "fairflows.frontiers.sweep",
    "load": "fairflows.storage.saving",
    "load_adult": "fairflows.table.adult",
    "load_compas": "fairflows.paper.datasets",
    "load_crime": "fairflows.paper.datasets",
    "load_health": "fairflows.paper.datasets",
    "load_law_school": "fairflows.paper.datasets",
    "make_gaussians": "fairflows.table.synthetic",
    "make_shifted_gaussians": "fairflows.table.synthetic",
    "make_three_groups": "fairflows.table.synthetic",
    "matched_pairs": "fairflows.explain.pairs",
    "recourse": "fairflows.explain.flipping",
    "report": "fairflows.workflow.job",
    "samples_needed": "fairflows.bounds.paper",
    "save": "fairflows.storage.saving",
    "statistical_distance": "fairflows.bounds.model",
    "transform_pipeline": "fairflows.encoder.pipelines",
    "verify": "fairflows.certificate.verifying",
}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fairflows' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return __all__

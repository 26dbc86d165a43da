"""Share a table without giving away a sensitive attribute, with a certificate of what it still reveals.

The public names below are loaded on first use (PEP 562), so that ``import fairflows`` and ``fairflows --help`` start
at once and do not import torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "CellCodec": "fairflows.data.cells",
    "CellRelease": "fairflows.release",
    "Certificate": "fairflows.certificate.document",
    "Codec": "fairflows.data.codec",
    "DataError": "fairflows.exceptions",
    "DataWarning": "fairflows.exceptions",
    "FairFlow": "fairflows.encoder.flow",
    "FairMatching": "fairflows.encoder.matching",
    "FairTransport": "fairflows.encoder.transport",
    "Report": "fairflows.reporting",
    "Table": "fairflows.data.table",
    "attack_lower_bound": "fairflows.certificate.lower",
    "audit": "fairflows.auditing",
    "betting_upper_bound": "fairflows.certificate.betting",
    "cell_upper_bound": "fairflows.certificate.cells",
    "certify": "fairflows.certificate.certifying",
    "decode_file": "fairflows.scale",
    "describe_datasets": "fairflows.data.catalogue",
    "encode_file": "fairflows.scale",
    "fit_pipeline": "fairflows.encoder.pipelines",
    "frontier": "fairflows.frontiers",
    "load": "fairflows.storage",
    "load_adult": "fairflows.data.datasets",
    "load_compas": "fairflows.data.datasets",
    "load_crime": "fairflows.data.datasets",
    "load_health": "fairflows.data.datasets",
    "load_law_school": "fairflows.data.datasets",
    "make_gaussians": "fairflows.data.synthetic",
    "make_shifted_gaussians": "fairflows.data.synthetic",
    "make_three_groups": "fairflows.data.synthetic",
    "matched_pairs": "fairflows.explain.pairs",
    "recourse": "fairflows.explain.flipping",
    "report": "fairflows.workflow",
    "samples_needed": "fairflows.certificate.paper",
    "save": "fairflows.storage",
    "statistical_distance": "fairflows.certificate.model",
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

"""Share a table without giving away a sensitive attribute, with a certificate of what it still reveals.

The public names below are loaded on first use (PEP 562), so that ``import fairflows`` and ``fairflows --help`` start
at once and do not import torch. Editors and type checkers read the imports under ``TYPE_CHECKING`` instead; a test
keeps the two in step.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairflows import bijection as bijection
    from fairflows import bounds as bounds
    from fairflows import density as density
    from fairflows import paper as paper
    from fairflows.attack.auditing import Audit as Audit
    from fairflows.attack.auditing import audit as audit
    from fairflows.certificate.certificate import Certificate as Certificate
    from fairflows.certificate.certify import certify as certify
    from fairflows.certificate.check import check as check
    from fairflows.certificate.verify import verify as verify
    from fairflows.encoder.base import Encoder as Encoder
    from fairflows.encoder.fair_cells import FairCells as FairCells
    from fairflows.encoder.fair_flow import FairFlow as FairFlow
    from fairflows.encoder.fair_matching import FairMatching as FairMatching
    from fairflows.encoder.fair_tree import FairTree as FairTree
    from fairflows.exceptions import DataError as DataError
    from fairflows.exceptions import DataWarning as DataWarning
    from fairflows.explain.pairs import matches as matches
    from fairflows.explain.recourse_search import recourse as recourse
    from fairflows.release.release import Release as Release
    from fairflows.report.page import Report as Report
    from fairflows.storage import load as load
    from fairflows.storage import save as save
    from fairflows.stream.batches import encode_batch as encode_batch
    from fairflows.stream.files import decode_file as decode_file
    from fairflows.stream.files import encode_file as encode_file
    from fairflows.table.examples import load_adult as load_adult
    from fairflows.table.table import Table as Table
    from fairflows.tradeoff import Frontier as Frontier
    from fairflows.tradeoff import frontier as frontier
    from fairflows.usefulness import StillTells as StillTells
    from fairflows.usefulness import still_tells as still_tells
    from fairflows.workflow.shared import Shared as Shared
    from fairflows.workflow.sharing import share as share

__version__ = "0.1.0"

_SUBMODULES = ("bijection", "bounds", "density", "paper")
_NAMES = {  # by the module that they are loaded from
    "fairflows.attack.auditing": "Audit audit",
    "fairflows.certificate.certify": "certify",
    "fairflows.certificate.check": "check",
    "fairflows.certificate.certificate": "Certificate",
    "fairflows.certificate.verify": "verify",
    "fairflows.encoder.base": "Encoder",
    "fairflows.encoder.fair_cells": "FairCells",
    "fairflows.encoder.fair_flow": "FairFlow",
    "fairflows.encoder.fair_matching": "FairMatching",
    "fairflows.encoder.fair_tree": "FairTree",
    "fairflows.exceptions": "DataError DataWarning",
    "fairflows.explain.recourse_search": "recourse",
    "fairflows.explain.pairs": "matches",
    "fairflows.usefulness": "StillTells still_tells",
    "fairflows.tradeoff": "Frontier frontier",
    "fairflows.release.release": "Release",
    "fairflows.report.page": "Report",
    "fairflows.storage": "load save",
    "fairflows.stream.batches": "encode_batch",
    "fairflows.stream.files": "decode_file encode_file",
    "fairflows.table.examples": "load_adult",
    "fairflows.table.table": "Table",
    "fairflows.workflow.shared": "Shared",
    "fairflows.workflow.sharing": "share",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_SUBMODULES, *_HOME]


if not TYPE_CHECKING:  # a type checker that sees `__getattr__` believes in any name

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES:
            return import_module(f"fairflows.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'fairflows' has no attribute {name!r}")
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value  # the next look-up does not come here
        return value


def __dir__() -> list[str]:
    return sorted(__all__)

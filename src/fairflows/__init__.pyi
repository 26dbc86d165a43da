# The public names: the one list, which is loaded lazily and which editors and type checkers read.
from . import bijection as bijection
from . import bounds as bounds
from . import density as density
from . import paper as paper
from .attack.auditing import Audit as Audit
from .attack.auditing import audit as audit
from .certificate.certificate import Certificate as Certificate
from .certificate.certify import certify as certify
from .certificate.check import check as check
from .certificate.verify import verify as verify
from .encoder.base import Encoder as Encoder
from .encoder.fair_cells import FairCells as FairCells
from .encoder.fair_flow import FairFlow as FairFlow
from .encoder.fair_matching import FairMatching as FairMatching
from .encoder.fair_tree import FairTree as FairTree
from .exceptions import DataError as DataError
from .exceptions import DataWarning as DataWarning
from .explain import matches as matches
from .explain import recourse as recourse
from .release.release import Release as Release
from .report.page import Report as Report
from .result import Shared as Shared
from .sharing import share as share
from .storage import load as load
from .storage import save as save
from .stream import decode_file as decode_file
from .stream import encode_batch as encode_batch
from .stream import encode_file as encode_file
from .table.examples import load_adult as load_adult
from .table.table import Table as Table
from .tradeoff import Frontier as Frontier
from .tradeoff import frontier as frontier
from .watching.watch import watch as watch
from .worth.usefulness import Usefulness as Usefulness
from .worth.usefulness import usefulness as usefulness

__version__: str

"""The type of a column must not depend on persons that a model encodes."""

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError
from fairflows.table.domain import Domain, Seen


def check(texts: list[str], n_seen: int, stated: tuple[str, ...] = ()) -> None:
    domain, codes = Domain.of(pd.DataFrame({"code": texts}))
    Seen.of(domain, {"code": codes["code"][:n_seen]}).check_texts(domain, stated)


@pytest.mark.parametrize(
    ("values", "read"),
    [(["1", "2"], "numbers"), (["true", "false"], "truth values"), (["2024-01-01", "2024-02-01"], "days"),
     (["0.5", "1e3"], "numbers")],
)  # fmt: skip
def test_text_that_only_some_persons_need_is_refused(values, read):
    with pytest.raises(DataError, match=rf"Column 'code' is text because of some persons alone: .* read as {read}"):
        check([*values, "a word"], len(values))
    check([*values, "a word"], len(values), stated=("code",))
    check([*values, "a word"], len(values) + 1)
    check(["a word", *values], 1)
    check([*values, *values], len(values))


def test_a_value_that_was_not_seen_is_unknown():
    frame = pd.DataFrame({"town": ["Ulm", "Bonn", "Ulm", "Rome"], "age": [30, 40, np.nan, 50]})
    domain, codes = Domain.of(frame)
    seen = Seen.of(domain, {name: column[:2] for name, column in codes.items()})
    assert seen.unknown(codes).tolist() == [False, False, True, True]
    later, outside = domain.read(pd.DataFrame({"town": ["Ulm", "Kiel"], "age": [None, 30.0]}))
    assert outside.unknown.tolist() == [False, True]
    assert seen.unknown(later).tolist() == [True, True]

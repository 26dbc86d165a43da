"""Text that only some parts of a table need."""

import pandas as pd
import pytest

from fairflows import DataError
from fairflows.table.reading import check_texts


@pytest.mark.parametrize(
    ("values", "read"),
    [(["1", "2"], "int64"), (["true", "false"], "bool"), (["2024-01-01", "2024-02-01"], "date32"), (["0.5"], "double")],
)
def test_text_that_only_some_parts_need_is_refused(values, read):
    one, other = pd.DataFrame({"code": values}), pd.DataFrame({"code": ["no value of another type"]})
    with pytest.raises(DataError, match=rf"Column 'code' is text in .* read as {read}"):
        check_texts([one, other], ())
    check_texts([one, other], ["code"])
    check_texts([one, one], ())
    check_texts([other, other], ())
    with pytest.raises(DataError, match="Column 'code'"):
        check_texts([one.astype("category"), other.astype("category")], ())

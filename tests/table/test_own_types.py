"""Types of columns that some rows have by themselves, and types that all parts of a table have."""

import numpy as np
import pandas as pd
import pytest

from fairflows import DataError
from fairflows.table.columns import Schema, common_schema, own_types
from fairflows.table.reading import check_texts


def test_other_rows_leave_no_trace_in_the_types_of_a_part():
    plain = pd.DataFrame(
        {
            "age": [31, 45, 27],
            "size": [1.5, 2.0, 2.5],
            "town": pd.Categorical(["Bonn", "Ulm", "Bonn"]),
            "owner": [True, False, True],
            "name": ["x", "y", "z"],
            "gap": [1.0, np.nan, 3.0],
        }
    )
    other = pd.DataFrame(
        {"age": [27.5], "size": ["large"], "town": ["Jena"], "owner": ["perhaps"], "name": ["w"], "gap": [2.5]}
    )
    whole = pd.concat([plain.astype({"town": str}), other], ignore_index=True).astype({"town": "category"})
    nullable = plain.astype({"age": "Int64", "size": "Float64", "gap": "Int64"})
    for rows in (plain, whole.iloc[:3], nullable):
        part = own_types(rows)
        pd.testing.assert_frame_equal(part, own_types(plain))
    assert part["age"].dtype == np.int64
    assert part["owner"].dtype == bool
    assert part["gap"].dtype == np.float64, "scikit-learn takes NaN, and not pandas' own missing value"
    assert part["town"].cat.categories.tolist() == ["Bonn", "Ulm"]


def test_parts_agree_on_what_a_column_holds():
    one, other = Schema({"a": "whole numbers", "b": "text"}), Schema({"a": "numbers", "b": "text"})
    assert common_schema([one, other]).kinds == {"a": "numbers", "b": "text"}
    with pytest.raises(DataError, match="Column 'b' holds dates in the persons of one fold and text in those"):
        common_schema([one, Schema({"a": "numbers", "b": "dates"})])


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

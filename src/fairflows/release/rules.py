"""Rules that every row of a table obeys, such as ``start <= end``, written as expressions over its columns."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from keyword import iskeyword
from typing import Any
from unicodedata import is_normalized

import numpy as np
import pandas as pd

from fairflows.arrays import NDArray
from fairflows.exceptions import DataError
from fairflows.table.columns import check_known, floats, has_order, is_number

BoolArray = NDArray[np.bool_]

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ALLOWED = "columns, numbers, texts, + - * / // %, comparisons, in [...], and, or, not"
_QUOTED = re.compile(r"`([^`]+)`")
_PREVIOUS = re.compile(r"\bprevious\.(?:`([^`]+)`|([^\W\d]\w*))")
_MOST_PROPOSED = 12
_FIRST_ROWS = 1_000


@dataclass(frozen=True)
class Rule:
    """An expression over columns that is true in every row.

    Names of columns that are not Python names are written in backticks. Where a column of the rule is missing, the rule
    says nothing about the row.

    Examples
    --------
    >>> rule = Rule("start <= end and kind in ['a', 'b']")
    >>> rule.is_broken(pd.DataFrame({"start": [1, 5, None], "end": [2, 4, 3], "kind": ["a", "b", "c"]}))
    array([False,  True, False])
    """

    text: str

    @property
    def columns(self) -> list[str]:
        """The columns that the expression names."""
        tree, quoted = self._parsed
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        return list(dict.fromkeys(quoted.get(name, name) for name in names))

    def is_broken(self, frame: pd.DataFrame) -> BoolArray:
        """Return which rows break the rule."""
        tree, quoted = self._parsed
        is_known = frame[self.columns].notna().all(axis=1).to_numpy()
        known = frame.loc[is_known]
        try:
            holds = np.broadcast_to(np.asarray(self._value(tree.body, known, quoted)), len(known))
        except DataError:
            raise
        except (TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise DataError(f"The rule {self.text!r} cannot be evaluated: {error}.") from None
        if len(holds) and pd.api.types.infer_dtype(holds) != "boolean":
            raise DataError(f"The rule {self.text!r} is neither true nor false: compare, as in 'start <= end'.")
        is_broken = np.zeros(len(frame), dtype=bool)
        is_broken[is_known] = ~holds.astype(bool)
        return is_broken

    @cached_property
    def _parsed(self) -> tuple[ast.Expression, dict[str, str]]:
        """The expression, and the names that stand for columns in backticks."""
        # Names with more underscores than the rule has characters: no column of the rule is called so.
        short = "c" + "_" * len(self.text)
        text, quoted = self.text.strip(), {f"{short}{i}": name for i, name in enumerate(_QUOTED.findall(self.text))}
        for short, name in quoted.items():
            text = text.replace(f"`{name}`", short, 1)
        try:
            return ast.parse(text, mode="eval"), quoted
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise DataError(f"The rule {self.text!r} is not an expression, such as 'start <= end'.") from None

    def _value(self, node: ast.expr, frame: pd.DataFrame, quoted: dict[str, str]) -> Any:
        """Evaluate a part of the expression; anything but columns, constants and operators is refused."""

        def value(part: ast.expr) -> Any:
            return self._value(part, frame, quoted)

        match node:
            case ast.Name(id=name):
                return _comparable(frame[quoted.get(name, name)])
            case ast.Constant(value=bool() | int() | float() | str() as constant):
                return constant
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return _ARITHMETIC[type(op)](_number(value(left)), _number(value(right)))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return ~np.asarray(value(operand), dtype=bool)
            case ast.BoolOp(op=op, values=parts):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return join.reduce([np.broadcast_to(np.asarray(value(part), dtype=bool), len(frame)) for part in parts])
            case ast.Compare(
                left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[ast.List() | ast.Tuple() as found]
            ):
                if not any(isinstance(part, ast.Name) for part in ast.walk(found)):
                    is_in = pd.Series(value(left)).isin([value(part) for part in found.elts])
                    return is_in if isinstance(op, ast.In) else ~is_in
            case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
                sides = [value(part) for part in (left, *others)]
                pairs = zip(ops, sides[:-1], sides[1:], strict=True)
                return np.logical_and.reduce([np.asarray(_COMPARISONS[type(op)](a, b)) for op, a, b in pairs])
        raise DataError(f"The rule {self.text!r} may contain {_ALLOWED}; got {ast.unparse(node)!r}.")


def _number(value: Any) -> Any:
    """Return an operand of arithmetic; raise for a text, which Python would repeat or fill in."""
    if isinstance(value, pd.Series) and pd.api.types.is_bool_dtype(value.dtype):
        return value.astype(np.int64)
    if isinstance(value, str) or (isinstance(value, pd.Series) and not has_order(value.dtype)):
        raise TypeError("arithmetic needs numbers, times or booleans")
    return value


def _comparable(column: pd.Series) -> pd.Series:
    """Return categories as their values, which have the order of their type, and integers in a type for their sums."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.dtype.categories.dtype)
    if not pd.api.types.is_integer_dtype(column.dtype):
        return column
    return column.astype(np.float64 if len(column) and column.max() > np.iinfo(np.int64).max else np.int64)


def check_rules(texts: Sequence[str], frame: pd.DataFrame) -> list[Rule]:
    """Return rules that every row of a table obeys; raise where rows break one, or where it cannot be evaluated."""
    if texts is None or isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"rules must be a list of expressions, such as ['start <= end']; got {texts!r}.")
    rules = [Rule(text) for text in texts]
    for rule in rules:
        if not rule.columns:
            raise DataError(f"The rule {rule.text!r} names no column.")
        for name in rule.columns:
            check_known(name, frame.columns, "rule's")
        broken = rule.is_broken(frame)
        if broken.any():
            raise DataError(
                f"The rule {rule.text!r} does not hold in the table: {int(broken.sum()):,} of {len(frame):,} rows "
                f"break it, the first is row {int(broken.argmax())}. Correct these rows, or the rule."
            )
    return rules


def previous(name: Hashable) -> str:
    """Return the name by which a rule has a column of the row before."""
    return f"previous.{name}"


def with_previous_columns(text: str) -> str:
    """Write the columns of the row before as names of columns.

    Examples
    --------
    >>> with_previous_columns("year > previous.year")
    'year > `previous.year`'
    """
    return _PREVIOUS.sub(lambda found: f"`{previous(found[1] or found[2])}`", text)


def proposed_rules(frame: pd.DataFrame) -> list[str]:
    """Propose inequalities between two numeric or time columns that no row breaks, and that chance would break.

    Two columns are compared only if their ranges overlap so much that many rows would break the inequality if the
    columns were independent. Of wide tables the first rows sift the pairs.
    """
    numbers = [name for name, column in frame.items() if is_number(column.dtype) and column.nunique() > 2]
    moments = [name for name, column in frame.items() if column.dtype.kind == "M"]
    values = {name: floats(frame[name]) for name in (*numbers, *moments)}
    first = {name: column[:_FIRST_ROWS] for name, column in values.items()}
    generator = np.random.default_rng(0)
    found = []
    for a, b in (*combinations(numbers, 2), *combinations(moments, 2)):
        less, more = ((x <= y).sum() for x, y in ((first[a], first[b]), (first[b], first[a])))
        if max(less, more) < (~np.isnan(first[a] - first[b])).sum():
            continue
        both = ~np.isnan(values[a]) & ~np.isnan(values[b])
        x, y = values[a][both], values[b][both]
        for lower, higher, low, high in ((a, b, x, y), (b, a, y, x)):
            if len(low) and (low <= high).all():
                by_chance = float((generator.permutation(low) > high).mean())
                if by_chance > 0.05:
                    sign = "<" if (low < high).all() else "<="
                    found.append((by_chance, f"{_written(lower)} {sign} {_written(higher)}"))
    return [text for _, text in sorted(found, reverse=True)[:_MOST_PROPOSED]]


def _written(name: Hashable) -> str:
    """Return the name of a column as a rule has it."""
    is_plain = str(name).isidentifier() and not iskeyword(str(name)) and is_normalized("NFKC", str(name))
    return str(name) if is_plain else f"`{name}`"

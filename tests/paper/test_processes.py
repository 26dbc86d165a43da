"""Work side by side in processes."""

import os

from fairflows.paper.experiments.outcome import in_processes
from fairflows.table.keys import Key
from fairflows.table.ledger import Ledger


def describe(numbers: list[float]) -> tuple[float, int]:
    return sum(numbers), os.getpid()


def test_results_come_in_order_from_other_processes():
    items = [[float(i)] * 3 for i in range(3)]
    found = in_processes(describe, items, 2)
    assert [total for total, _ in found] == [0, 3, 6]
    assert os.getpid() not in {process for _, process in found}
    assert in_processes(describe, items[:1], 1) == [(0, os.getpid())]


def used_by(ledger: Ledger) -> tuple[bytes, int]:
    return bytes(ledger.key), len(ledger.used)


def test_keys_and_ledgers_go_along():
    ledger = Ledger(Key(b"sixteen or more bytes"), [])
    assert in_processes(used_by, [ledger, ledger], 2) == [(b"sixteen or more bytes", 0)] * 2

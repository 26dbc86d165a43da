"""Work on a second stream waits for the first, and is waited for; played through without a GPU."""

import gc
import weakref
from contextlib import nullcontext

import pytest
import torch

from fairflows.compute import steps
from fairflows.compute.steps import SecondStream


class Recorded:
    """A stream that writes down whom it waits for."""

    def __init__(self, name: str, log: list[str]):
        self.name, self.log = name, log

    def wait_stream(self, other: "Recorded") -> None:
        self.log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def log(monkeypatch):
    written: list[str] = []
    first, second = Recorded("first", written), Recorded("second", written)
    monkeypatch.setattr(steps, "_stream_for", lambda device, purpose: second)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: first)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext(written.append(f"on {stream.name}")))
    return written


def test_each_piece_of_work_waits_and_all_of_it_is_waited_for_once(log):
    beside = SecondStream(torch.device("cuda"), "sums")
    assert beside.run(sum, [1, 2]) == 3
    assert beside.run(lambda: log.append("work")) is None
    assert log == ["second waits for first", "on second", "second waits for first", "on second", "work"]
    beside.join()
    beside.join()
    assert log[5:] == ["first waits for second"]


def test_a_stream_that_had_no_work_is_not_waited_for(log):
    SecondStream(torch.device("cuda"), "sums").join()
    assert log == [], "a graph that is captured would not know it"


def test_what_the_work_reads_is_held_until_it_is_waited_for(log):
    beside, read = SecondStream(torch.device("cuda"), "sums"), torch.ones(2)
    held = weakref.ref(read)
    beside.run(torch.neg, read)
    del read
    gc.collect()
    assert held() is not None
    beside.join()
    gc.collect()
    assert held() is None

"""How many threads a training loop takes; work on a second stream, played through without a GPU."""

import gc
import weakref
from contextlib import nullcontext

import pytest
import torch

from fairflows.compute import steps
from fairflows.compute.steps import SecondStream, fastest_threads


class Clock:
    """Stands in for `time`: a step takes so many seconds with so many threads."""

    def __init__(self, seconds):
        self.seconds, self.now = seconds, 0.0

    def perf_counter(self):
        return self.now

    def step(self):
        self.now += self.seconds[torch.get_num_threads()]


@pytest.fixture
def six_threads(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    monkeypatch.setattr(steps, "cpu_count", lambda: 64)
    yield
    torch.set_num_threads(before)


def threads_of(clock, n_steps, monkeypatch):
    """How many threads each step had."""
    monkeypatch.setattr(steps, "time", clock)
    found = []

    def step():
        found.append(torch.get_num_threads())
        clock.step()

    with fastest_threads(torch.device("cpu")) as run:
        for _ in range(n_steps):
            run(step)
    return found


@pytest.mark.usefixtures("six_threads")
@pytest.mark.parametrize(
    ("seconds", "tried", "best"),
    [
        ({1: 5, 2: 777}, [1, 1, 1, 2], 1),  # a step that takes as long as many others is not repeated
        ({1: 5, 2: 3, 4: 4}, [1, 1, 1, 2, 2, 2, 4, 4, 4], 2),
        ({1: 5, 2: 3, 4: 2, 6: 1}, [1, 1, 1, 2, 2, 2, 4, 4, 4, 6, 6, 6], 6),
    ],
)
def test_the_fastest_number_of_threads_is_taken_and_measured_again(seconds, tried, best, monkeypatch):
    found = threads_of(Clock(seconds), 500, monkeypatch)
    assert found[: len(tried) + 200] == [*tried, *[best] * 200]
    assert found[len(tried) + 200 :] == [*tried, *[best] * (300 - 2 * len(tried))]


@pytest.mark.usefixtures("six_threads")
def test_when_the_machine_becomes_busy_one_thread_is_taken(monkeypatch):
    clock = Clock({1: 5, 2: 3, 4: 4})
    monkeypatch.setattr(steps, "time", clock)
    with fastest_threads(torch.device("cpu")) as run:
        for _ in range(100):
            run(clock.step)
        assert torch.get_num_threads() == 2
        clock.seconds = {1: 10, 2: 700, 4: 700}
        for _ in range(200):
            run(clock.step)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 6


@pytest.mark.usefixtures("six_threads")
def test_a_quota_and_the_users_number_are_not_exceeded(monkeypatch):
    clock = Clock({1: 5, 2: 4, 3: 3})
    monkeypatch.setattr(steps, "cpu_count", lambda: 3)
    assert max(threads_of(clock, 50, monkeypatch)) == 3
    torch.set_num_threads(2)
    assert max(threads_of(clock, 50, monkeypatch)) == 2


@pytest.mark.usefixtures("six_threads")
def test_torch_has_its_threads_back_after_an_error():
    def fail():
        with fastest_threads(torch.device("cpu")):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == 6


@pytest.mark.usefixtures("six_threads")
def test_on_a_gpu_threads_are_left_as_they_are():
    seen = []
    with fastest_threads(torch.device("cuda")) as run:
        run(lambda: seen.append(torch.get_num_threads()))
    assert seen == [6]


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

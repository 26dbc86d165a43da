"""How many threads a training loop takes."""

import pytest
import torch

from fairflows.compute import steps
from fairflows.compute.steps import fastest_threads


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

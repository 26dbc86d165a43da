"""How many threads a training loop takes."""

import pytest
import torch

from fairflows import steps
from fairflows.steps import chosen_threads


@pytest.fixture
def six_threads(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    monkeypatch.setattr(steps, "cpu_count", lambda: 64)
    yield
    torch.set_num_threads(before)


class Clock:
    """Stands in for `time`: a step takes so many seconds with so many threads."""

    def __init__(self, seconds):
        self.seconds, self.now = seconds, 0.0

    def perf_counter(self):
        return self.now

    def step(self):
        self.now += self.seconds[torch.get_num_threads()]


@pytest.mark.usefixtures("six_threads")
@pytest.mark.parametrize(("seconds", "best"), [({1: 5, 6: 7}, 1), ({1: 5, 6: 3}, 6)])
def test_the_faster_number_of_threads_is_kept(seconds, best, monkeypatch):
    clock = Clock(seconds)
    monkeypatch.setattr(steps, "time", clock)
    found = []
    with chosen_threads(torch.device("cpu")) as run:
        for _ in range(20):
            run(lambda: (found.append(torch.get_num_threads()), clock.step()))
    assert found == [1] * 4 + [6] * 4 + [best] * 12
    assert torch.get_num_threads() == 6


@pytest.mark.usefixtures("six_threads")
def test_a_quota_is_not_exceeded(monkeypatch):
    monkeypatch.setattr(steps, "cpu_count", lambda: 3)
    found = []
    with chosen_threads(torch.device("cpu")) as run:
        for _ in range(10):
            run(lambda: found.append(torch.get_num_threads()))
    assert max(found) == 3


@pytest.mark.usefixtures("six_threads")
def test_torch_has_its_threads_back_after_an_error():
    def fail():
        with chosen_threads(torch.device("cpu")) as run:
            run(lambda: {}["missing"])

    with pytest.raises(KeyError):
        fail()
    assert torch.get_num_threads() == 6


@pytest.mark.usefixtures("six_threads")
def test_on_a_gpu_threads_are_left_as_they_are():
    seen = []
    with chosen_threads(torch.device("cuda")) as run:
        run(lambda: seen.append(torch.get_num_threads()))
    assert seen == [6]

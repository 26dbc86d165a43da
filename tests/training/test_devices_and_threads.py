"""The device picker, the thread guards, and how many threads a training loop takes."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np  # noqa: F401  (loads BLAS)
import pytest
import torch
from threadpoolctl import threadpool_info

from fairflows import steps
from fairflows.steps import chosen_device, chosen_threads, drawn_rows
from fairflows.threads import one_thread


@pytest.mark.parametrize("name", ["tpu", "", "cuda:x", "cuda:-1"])
def test_an_unknown_device_is_named(name):
    with pytest.raises(
        ValueError, match=re.escape(f"device must be 'auto', 'cpu', 'mps', 'cuda' or 'cuda:<number>'; got {name!r}.")
    ):
        chosen_device(name)


def test_auto_is_a_gpu_only_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert chosen_device("auto") == torch.device("cuda")


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="torch can use .0 here.; got 'cuda'"):
        chosen_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert chosen_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ValueError, match="torch can use .2 here.; got 'cuda:2'"):
        chosen_device("cuda:2")


def test_the_gpu_of_a_mac_is_taken_where_it_is_named(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ValueError, match="device='mps' needs a Mac with Apple silicon"):
        chosen_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert chosen_device("mps") == torch.device("mps")


def test_no_row_is_drawn_past_its_group():
    """In single precision, which a Mac's GPU draws in, the product of the largest share and a size rounds up."""
    sizes = torch.tensor([3, 16_777_217])
    rows = drawn_rows(sizes, 50, 20_000, torch.Generator().manual_seed(0))
    assert (rows[:, 0].min(), rows[:, 0].max()) == (0, 2)
    assert rows[:, 1].min() >= 3
    assert rows[:, 1].max() < 3 + sizes[1]


@pytest.fixture
def three_torch_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_torch_threads")
def test_one_thread_holds_inside_and_is_undone_after_an_error():
    seen = []

    def fail():
        with one_thread():
            seen.extend([torch.get_num_threads(), *(library["num_threads"] for library in threadpool_info())])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert set(seen) == {1}
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_torch_threads")
def test_tasks_of_a_pool_do_not_give_each_other_threads_back():
    def task(_):
        with one_thread():
            pass
        return torch.get_num_threads()

    with one_thread(), ThreadPoolExecutor(4) as pool:
        assert set(pool.map(task, range(20))) == {1}
    assert torch.get_num_threads() == 3


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

"""One optimisation step, repeated: eagerly, or on a GPU as a captured CUDA graph, with some work beside it.

A step of small stacked networks is a few hundred kernels of a few microseconds each. Launched one by one from Python
they leave a GPU idle most of the time; captured once and replayed, they follow each other without a gap, and those on a
second stream run beside them. On a CPU threads wait for each other after every kernel, so how many of them are worth it
is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch
from joblib import cpu_count
from torch import Tensor

_WARM_UP = 3  # steps before a capture: lazily made buffers, handles and optimiser states must exist by then
_TINY = 1e-20  # what a weight this small adds to anything is lost in rounding, and so is a step that is made of it
_TINY_SQUARE = 1e-36  # of gradients, of which the root is added to 1e-8
_UNTIL_CLEARED = 32  # steps; in so many, no number goes from there to where processors are slow
_UNTIL_MEASURED_AGAIN = 200  # steps, then twice as many each time; other work on the machine comes and goes

Step = Callable[[], None]
Result = TypeVar("Result")


def milestone_rate(start: float, step: int, n_steps: int) -> float:
    """The paper's schedule: the learning rate is divided by ten after one third and again after two thirds."""
    return start * 0.1 ** ((step >= n_steps // 3) + (step >= 2 * n_steps // 3))


class AdamSteps:
    """Adam steps on a loss that reads and writes fixed buffers, the same numbers whether captured or not.

    Parameters
    ----------
    loss
        Computes the loss of the current step from tensors that live as long as this object. It must not synchronise
        with the host when steps are captured.
    parameters
        What is trained.
    learning_rate, weight_decay
        Adam's, with the decay inside the gradient, as in the paper.
    capture
        Capture the step as a CUDA graph; the first steps run eagerly.
    """

    def __init__(
        self,
        loss: Callable[[], Tensor],
        parameters: Iterable[Tensor],
        *,
        learning_rate: float,
        weight_decay: float = 0.0,
        capture: bool = False,
    ):
        self._loss = loss
        self._capture = capture
        self._trained = list(parameters)
        self._current_rate, self._weight_decay = learning_rate, weight_decay
        device = self._trained[0].device
        self._rate = torch.tensor(learning_rate, device=device)
        self._means = [torch.zeros_like(parameter) for parameter in self._trained]
        self._squares = [torch.zeros_like(parameter) for parameter in self._trained]
        self._counts = [torch.zeros((), device=device) for _ in self._trained]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._n_eager = 0

    def set_learning_rate(self, rate: float) -> None:
        """Change the learning rate from the next step on."""
        if rate != self._current_rate:
            self._rate.fill_(rate)
            self._current_rate = rate

    def step(self) -> None:
        """One step."""
        if self._graph is not None:
            self._graph.replay()
        elif not self._capture:
            self._run()
            self._n_eager += 1
            if self._n_eager % _UNTIL_CLEARED == 0:
                self._clear_tiny_numbers()
        elif self._n_eager < _WARM_UP:
            self._run_aside()
            self._n_eager += 1
        else:
            self._graph = self._captured()
            self._graph.replay()

    def _run(self) -> None:
        self._forget_gradients()
        self._loss().backward()
        self._update()

    def _forget_gradients(self) -> None:
        for parameter in self._trained:
            parameter.grad = None

    @torch.no_grad()
    def _update(self) -> None:
        """What `torch.optim.Adam` does; to make one loads torch's compiler, which takes two seconds."""
        states = zip(self._trained, self._means, self._squares, self._counts, strict=True)
        weights, means, squares, counts = zip(*(state for state in states if state[0].grad is not None), strict=True)
        torch._foreach_add_(counts, 1)
        torch._fused_adam_(
            weights,
            [parameter.grad for parameter in weights],
            means,
            squares,
            [],
            counts,
            lr=self._rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self._weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    @torch.no_grad()
    def _clear_tiny_numbers(self) -> None:
        """Set numbers next to zero to zero.

        Weight decay takes the weights of units that no row activates, and their means, ever nearer to zero. Below 1e-38
        float32 has fewer digits, and processors take many times as long for a product.
        """
        for numbers in (*(parameter.data for parameter in self._trained), *self._means):
            numbers.masked_fill_(numbers.abs() < _TINY, 0)
        for squares in self._squares:
            squares.masked_fill_(squares < _TINY_SQUARE, 0)

    def _run_aside(self) -> None:
        """A step on a stream of its own, as the capture that follows needs."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._run()
        torch.cuda.current_stream().wait_stream(stream)

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._forget_gradients()  # so that they are made inside the graph's own memory
        with torch.cuda.graph(graph):
            self._loss().backward()
            self._update()
        return graph


class SecondStream:
    """Runs work beside the current stream of a GPU, for one purpose; on another device at once.

    Before each piece of work the second stream waits for all that the first was asked to do so far, and what the work
    reads is held until `join`: memory that one stream gives back is never written while the other still reads it.

    Examples
    --------
    >>> beside = SecondStream(torch.device("cpu"), "sums")
    >>> beside.run(torch.add, torch.ones(2), 1)
    tensor([2., 2.])
    >>> beside.join()
    """

    def __init__(self, device: torch.device, purpose: str):
        self._stream = _stream_for(device, purpose) if device.type == "cuda" else None
        self._read: list[object] = []
        self._is_running = False

    def run(self, work: Callable[..., Result], *args: object) -> Result:
        """Ask for work whose result is read after `join`."""
        if self._stream is None:
            return work(*args)
        self._read += args
        self._is_running = True
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            return work(*args)

    def join(self) -> None:
        """Let the current stream wait for the work."""
        if self._stream is not None and self._is_running:  # an idle stream is no part of a graph that is captured
            torch.cuda.current_stream().wait_stream(self._stream)
            self._read.clear()
            self._is_running = False


@cache
def _stream_for(device: torch.device, purpose: str) -> torch.cuda.Stream:
    """Always the same one: the memory of a stream serves that stream only."""
    return torch.cuda.Stream(device)


@contextmanager
def fastest_threads(device: torch.device) -> Iterator[Callable[[Step], None]]:
    """Run the steps of a training loop with as many of torch's threads as make them fastest.

    The first steps are timed with 1, 2, 4, ... threads, for as long as more are faster, and so are some steps later on.
    The most are those that torch has now (what ``OMP_NUM_THREADS`` says where it is set), and no more than the
    processors that this process may use, a container's quota included. Afterwards torch has as many as before. On a GPU
    steps are run as they are.

    Examples
    --------
    >>> weights = torch.ones(3)
    >>> with fastest_threads(weights.device) as run:
    ...     for _ in range(5):
    ...         run(lambda: weights.mul_(2))
    >>> weights
    tensor([32., 32., 32.])
    """
    if device.type != "cpu":
        yield lambda step: step()
        return
    n_before = torch.get_num_threads()
    schedule = _measured_threads(min(n_before, cpu_count()))

    def run(step: Step) -> None:
        start = time.perf_counter()
        step()
        torch.set_num_threads(schedule.send(time.perf_counter() - start))

    torch.set_num_threads(next(schedule))
    try:
        yield run
    finally:
        torch.set_num_threads(n_before)


def _measured_threads(most: int) -> Generator[int, float, None]:
    """Yield how many threads the next step takes; receive how long it took."""
    pause = _UNTIL_MEASURED_AGAIN
    while True:
        best, shortest = 1, float("inf")
        for n in (*(2**i for i in range((most - 1).bit_length())), most):
            # New threads start, caches fill: not timed. But threads that wait for a busy processor are noticed here:
            # one such step may take as long as a hundred others.
            if (yield n) > 5 * shortest:
                break
            seconds = (yield n) + (yield n)
            if seconds > shortest:
                break
            best, shortest = n, seconds
        for _ in range(pause):
            yield best
        pause *= 2

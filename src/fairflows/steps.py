"""Adam steps on stacked networks, one by one on a processor, captured as a CUDA graph on a GPU; devices and threads.

A step of small stacked networks is a few hundred kernels of a few microseconds each. Launched one by one from Python
they leave a GPU idle most of the time; captured once and replayed, they follow each other without a gap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from joblib import cpu_count
from torch import Tensor

from fairflows.exceptions import DataError

_WARM_UP = 3  # steps before a capture, which needs lazily made buffers, handles and optimiser states
_TRIED = 4  # steps that are timed with one thread, and as many with all threads
_UNTIL_CLEARED = 32  # steps, in which no number falls from these limits to below 1e-38
_TINY = {"weight": 1e-20, "exp_avg": 1e-20, "exp_avg_sq": 1e-36}

Step = Callable[[], None]


def milestone_rate(start: float, step: int, n_steps: int) -> float:
    """Return the paper's learning rate: divided by ten after one third of the steps, and again after two thirds."""
    return start * 0.1 ** ((step >= n_steps // 3) + (step >= 2 * n_steps // 3))


def drawn_rows(sizes: Tensor, n_steps: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Draw numbers of rows with replacement, (T, K, B), from the rows of K groups that follow each other."""
    shape = (n_steps, len(sizes), batch_size)
    exact = torch.float32 if sizes.device.type == "mps" else torch.float64  # which Apple's GPUs do not have
    uniform = torch.rand(shape, generator=generator, device=sizes.device, dtype=exact)
    row = (uniform * sizes[:, None]).long().minimum(sizes[:, None] - 1)  # a product may round up to the size
    return (sizes.cumsum(0) - sizes)[:, None] + row


class AdamSteps:
    """Adam steps on a loss that reads and writes fixed buffers; the numbers are the same captured or not.

    Parameters
    ----------
    loss
        Compute the loss of the current step from tensors that live as long as this object. It must not synchronise
        with the host when steps are captured.
    parameters
        The weights to train.
    learning_rate, weight_decay
        Of Adam, with the decay inside the gradient, as in the paper.
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
        self._loss, self._capture = loss, capture
        trained = list(parameters)
        self._current_rate = learning_rate
        self._rate = torch.tensor(learning_rate, device=trained[0].device)  # a captured step reads it
        self._adam = torch.optim.Adam(
            trained, lr=self._rate, weight_decay=weight_decay, fused=True, capturable=trained[0].is_cuda
        )
        self._graph: torch.cuda.CUDAGraph | None = None
        self._n_steps = 0

    def set_learning_rate(self, rate: float) -> None:
        """Change the learning rate from the next step on."""
        if rate != self._current_rate:
            self._rate.fill_(rate)
            self._current_rate = rate

    def step(self) -> None:
        """Take one step."""
        if not self._capture:
            self._run()
            if self._n_steps % _UNTIL_CLEARED == 0:
                self._clear_tiny_numbers()
        elif self._n_steps < _WARM_UP:
            self._run_aside()
        else:
            self._graph = self._graph or self._captured()
            self._graph.replay()
        self._n_steps += 1

    def _run(self) -> None:
        self._adam.zero_grad()
        self._loss().backward()
        self._adam.step()

    def _run_aside(self) -> None:
        """Take a step on a separate stream, which the following capture needs."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._run()
        torch.cuda.current_stream().wait_stream(stream)

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._adam.zero_grad()  # so that gradients are made inside the graph's own memory
        with torch.cuda.graph(graph):
            self._loss().backward()
            self._adam.step()
        return graph

    @torch.no_grad()
    def _clear_tiny_numbers(self) -> None:
        """Set numbers next to zero to zero.

        Weight decay takes the weights of units that no row activates, and their means, ever nearer to zero. Below 1e-38
        float32 has fewer digits, and some processors take many times as long for a product. (torch's own
        `set_flush_denormal` holds for the calling thread only.)
        """
        for weight, state in self._adam.state.items():
            for name, smallest in _TINY.items():
                numbers = weight if name == "weight" else state[name]
                numbers.masked_fill_(numbers.abs() < smallest, 0)


@contextmanager
def chosen_threads(device: torch.device) -> Iterator[Callable[[Step], None]]:
    """Run the steps of a training loop with one of torch's threads or with all of them, whichever is faster.

    The first steps are timed: threads wait for each other after every kernel, so a second one may cost more than it
    gains. All threads are those that torch has now (``OMP_NUM_THREADS`` where it is set), and no more than the
    processors that this process may use, a container's quota included. Afterwards torch has as many as before. On a GPU
    steps run as they are.

    Examples
    --------
    >>> weights = torch.ones(3)
    >>> with chosen_threads(weights.device) as run:
    ...     for _ in range(5):
    ...         run(lambda: weights.mul_(2))
    >>> weights
    tensor([32., 32., 32.])
    """
    n_before = torch.get_num_threads()
    most = min(n_before, cpu_count())
    n_timed = 2 * _TRIED if device.type == "cpu" and most > 1 else 0
    seconds: list[float] = []

    def run(step: Step) -> None:
        if len(seconds) == n_timed:
            step()
            return
        torch.set_num_threads(1 if len(seconds) < _TRIED else most)
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
        if len(seconds) == n_timed and min(seconds[:_TRIED]) < min(seconds[_TRIED:]):
            torch.set_num_threads(1)

    try:
        yield run
    finally:
        torch.set_num_threads(n_before)


def chosen_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is a CUDA GPU where torch can use one, else the CPU.

    Examples
    --------
    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise DataError("device='mps' needs a Mac with Apple silicon, whose GPU torch can use.")
        return torch.device("mps")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise DataError(f"device must be 'auto', 'cpu', 'mps', 'cuda' or 'cuda:<number>'; got {name!r}.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise DataError(
            f"device must name one of the GPUs that torch can use ({torch.cuda.device_count()} here); got {name!r}."
        )
    return torch.device(name)

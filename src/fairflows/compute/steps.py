"""One optimisation step, repeated: eagerly, or on a GPU as a captured CUDA graph.

A step of small stacked networks is a few hundred kernels of a few microseconds each. Launched one by one from Python
they leave a GPU idle most of the time; captured once and replayed, they follow each other without a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

_WARM_UP = 3  # steps before a capture: lazily made buffers, handles and optimiser states must exist by then


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
        parameters: Iterable[nn.Parameter],
        *,
        learning_rate: float,
        weight_decay: float = 0.0,
        capture: bool = False,
    ):
        self._loss = loss
        self._capture = capture
        trained = list(parameters)
        self._current_rate = learning_rate
        self._rate = torch.tensor(learning_rate, device=trained[0].device)
        on_gpu = trained[0].device.type == "cuda"
        self._adam = torch.optim.Adam(trained, lr=self._rate, weight_decay=weight_decay, fused=True, capturable=on_gpu)
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
        elif self._n_eager < _WARM_UP:
            self._run_aside()
            self._n_eager += 1
        else:
            self._graph = self._captured()
            self._graph.replay()

    def _run(self) -> None:
        self._adam.zero_grad(set_to_none=True)
        self._loss().backward()
        self._adam.step()

    def _run_aside(self) -> None:
        """A step on a stream of its own, as the capture that follows needs."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._run()
        torch.cuda.current_stream().wait_stream(stream)

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._adam.zero_grad(set_to_none=True)  # so that the gradients are made inside the graph's own memory
        with torch.cuda.graph(graph):
            self._loss().backward()
            self._adam.step()
        return graph

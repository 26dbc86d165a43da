"""What the neural baselines share: tables in, one network for all groups, many seeds in one run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from fairflows.encoder.base import GroupEncoder
from fairflows.exceptions import DataError
from fairflows.paper.baselines.game import NO_DENSITY, Game, play
from fairflows.release.numeric_view import NumericView

Array = npt.NDArray[np.float64]


class NeuralBaseline(GroupEncoder):
    """Base of the adversarial baselines: z = f(x), one network for all groups.

    The sensitive attribute is needed to fit, and not to encode.
    """

    no_density: ClassVar[str] = NO_DENSITY

    n_epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    device: str
    random_state: int
    view_: NumericView
    game_: Game

    def _fit(
        self,
        X: Any,
        y: Any,
        sensitive_features: Any,
        sample_weight: Any,
        strengths: Sequence[float],
        seeds: Sequence[int],
        made: list[Self],
    ) -> None:
        if sample_weight is not None:
            raise DataError(f"{type(self).__name__} does not take sample_weight.")
        rows = self._read(X, sensitive_features, fit=True)
        labels = self._read_label(y, len(rows.X))
        if labels is None:
            raise DataError(f"{type(self).__name__} trains for a task: pass y.")
        self.view_ = NumericView.fit(rows.X, None, 0)
        device = torch.device(self._device())
        x = torch.as_tensor(self.view_.features(rows.X), dtype=torch.float32, device=device)
        models = [(strength, seed) for strength in strengths for seed in seeds]
        strength = torch.tensor([g for g, _ in models], dtype=torch.float32, device=device)
        model_seeds = [seed for _, seed in models]
        game = self._game(x.shape[1], len(self.classes_), len(self.groups_), strength, model_seeds).to(device)
        play(
            game,
            x,
            torch.as_tensor(labels, device=device),
            torch.as_tensor(rows.group, device=device),
            seeds=model_seeds,
            epochs=self.n_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            balanced=self._balanced,
        )
        learnt = {name: value for name, value in self.__dict__.items() if name.endswith("_")}
        game = game.cpu()
        for m, encoder in enumerate(made):
            encoder.__dict__.update(learnt, game_=game.select(m).requires_grad_(False))

    _balanced: ClassVar[bool] = False

    @abstractmethod
    def _game(self, n_features: int, n_classes: int, n_groups: int, strength: Tensor, seeds: Sequence[int]) -> Game:
        """The networks of all models, untrained."""

    def _device(self) -> str:
        if self.device == "auto":
            return "cuda" if torch.cuda.is_available() else "cpu"
        return self.device

    def transform(self, X: Any, *, sensitive_features: Any = None) -> Any:
        """Encode rows; the sensitive attribute is not used."""
        z = self._represent(X).double().numpy()
        return self._wrap_output(X, pd.DataFrame(z, columns=[f"z{j}" for j in range(z.shape[1])]))

    def predict(self, X: Any, *, sensitive_features: Any = None) -> npt.NDArray[Any]:
        """The class that the predictor on z sees."""
        with torch.no_grad():
            return self.classes_[self.game_.predictor(self._represent(X)[None])[0].argmax(-1).numpy()]

    def _represent(self, X: Any) -> Tensor:
        check_is_fitted(self)
        frame = self._frame(X)
        validate_data(
            self, frame if isinstance(X, pd.DataFrame) else frame.to_numpy(), skip_check_array=True, reset=False
        )
        roles = [*([self.sensitive] if isinstance(self.sensitive, str) else self.sensitive or []), self.identifier]
        features = self.view_.features(frame.drop(columns=[name for name in roles if name in frame.columns]))
        with torch.no_grad():
            return self.game_.represent(torch.as_tensor(features, dtype=torch.float32)[None])[0][0]

    def _names_out(self) -> list[str]:
        return [f"z{j}" for j in range(self._n_latent())]

    @abstractmethod
    def _n_latent(self) -> int:
        """The dimensions of z."""


def check_strength(name: str, value: float, most: float = np.inf) -> None:
    """Refuse a trade-off outside its range."""
    if not 0 <= value <= most:
        allowed = "at least 0" if np.isinf(most) else f"in [0, {most:g}]"
        raise ValueError(f"{name} must be {allowed}; got {value!r}.")

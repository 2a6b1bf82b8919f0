"""A cost model that is learned: from features of candidates to how fast each is beside the best of its workload.

Gradient boosted trees, as AutoTVM and Ansor use them (Chen et al., "Learning to Optimize Tensor Programs", NeurIPS 2018; Zheng et al., OSDI
2020), by LightGBM, which is no part of a plain installation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from shared_ir.errors import ErrorCode, IngotError
from shared_ir.extras import needing

_SLOWEST = 4.0
"""Speeds below one in ``2 ** 4`` are all alike: how slow a bad candidate is need not be learned."""
_PARAMETERS: dict[str, Any] = {
    "objective": "regression",
    "learning_rate": 0.1,
    "num_leaves": 15,
    "min_data_in_leaf": 4,
    "min_data_in_bin": 1,
    "feature_fraction": 0.7,
    "lambda_l2": 1.0,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
_ROUNDS = 100
"""Trees."""


def missing() -> str:
    """Why nothing can be learned here, in a sentence; empty where it can."""
    try:
        _library()
    except IngotError as error:
        return f"{error.message}; candidates are measured in the order in which they are found. {error.remedy}"
    return ""


def _library() -> Any:
    try:
        with needing("tune", "the LightGBM of the cost model"):
            import lightgbm
    except OSError as error:
        raise IngotError(
            ErrorCode.UNAVAILABLE,
            f"the LightGBM of the cost model cannot be loaded here: {error}",
            remedy="Install the OpenMP library of GCC, package libgomp1 of Debian and Ubuntu.",
        ) from error
    return lightgbm


@dataclass(frozen=True)
class CostModel:
    """What was learned.

    Attributes:
        samples: that it was learned from.
        seconds: that learning took.
    """

    samples: int
    seconds: float
    _booster: Any

    @classmethod
    def fit(cls, features: np.ndarray, seconds: np.ndarray, groups: Sequence[object], seed: int = 0) -> Self:
        """The model of candidates that took so many ``seconds``. Equal samples give equal models.

        Args:
            features: float32[n, k].
            seconds: float[n], above 0.
            groups: the workload of each; what is learned is how fast a candidate is beside the best of its own.

        Raises:
            IngotError: UNAVAILABLE, LightGBM is not installed.
        """
        library, start = _library(), time.perf_counter()
        data = library.Dataset(features, label=speeds(seconds, groups), params={**_PARAMETERS, "verbosity": -1})
        booster = library.train({**_PARAMETERS, "seed": seed}, data, num_boost_round=_ROUNDS)
        return cls(len(features), time.perf_counter() - start, booster)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """float64[n]: how fast candidates with ``features``, float32[n, k], are taken to be; the best of a workload is near 1, one that
        takes twice as long near 0.5."""
        return np.asarray(np.exp2(self._booster.predict(features, num_threads=1)), np.float64)


def speeds(seconds: np.ndarray, groups: Sequence[object]) -> np.ndarray:
    """float32[n]: ``log2(seconds of the best of its group / seconds)``, at least -4."""
    logs, number = np.log2(np.asarray(seconds, np.float64)), {g: i for i, g in enumerate(dict.fromkeys(groups))}
    places = np.array([number[group] for group in groups])
    best = np.full(len(number), np.inf)
    np.minimum.at(best, places, logs)
    return np.asarray(np.maximum(best[places] - logs, -_SLOWEST), np.float32)

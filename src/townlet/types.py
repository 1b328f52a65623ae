"""Types that everything shares. The shape of an array stands beside it, in a comment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]  # of the dtype that its comment says
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None  # what a JSON file can say

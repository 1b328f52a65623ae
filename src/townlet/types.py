"""Types that everything shares. The shape of an array stands beside it, in a comment."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]  # of the dtype that its comment says
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Record: TypeAlias = dict[str, Any]  # a JSON object, such as a line of a log or an event; its schema says what it holds

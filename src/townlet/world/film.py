"""What one sees of a town at a tick: a row of bytes, written by a kernel before every tick of a step.

A row holds, column after column, the residents' (each N bytes a plane, the low byte first), the objects' (M) and the town's.
Row k of a step is the town at the k-th of its ticks, decisions already taken up; a quarrel of that very tick is marked in it.
"""

from __future__ import annotations

import numpy as np

from townlet.world._jit import kernel
from townlet.world.actions import CHAT, HOME, LEAVE, WORK
from townlet.world.events import QUARREL
from townlet.world.state import MAX_EDGES, NEEDS, PERTURBATIONS, Array, State, Town
from townlet.world.systems.relationships import rivalry_now

# name, bytes, signed, scale; the needs follow the residents' columns, one byte each, level × 255
RESIDENT_COLUMNS = (
    ("x", 2),
    ("y", 2),
    ("action", 1),  # index into the catalogue: the decision under way
    ("doing", 1),  # index into DOING; + QUARRELS while it quarrels
    ("thing", 2),  # object used, called to, queued for or walked to, + 1; 0 = none
    ("rivalry", 1, False, 1 / 255),  # the highest of its ties
)
OBJECT_COLUMNS = (("user", 2), ("waiting", 1), ("stock", 1))  # slot + 1; queue with whoever was called; 255 = without end
TOWN_COLUMNS = (("minute", 2), ("troubles", 1))  # bit k: PERTURBATIONS[k] is in force
DOING = ("absent", "idle", "walks", "uses", "queues", "called", "works", "to_work", "to_home", "to_chat", "leaves")
ABSENT, IDLE, WALKS, USES, QUEUES, CALLED, WORKS, TO_WORK, TO_HOME, TO_CHAT, LEAVES = range(len(DOING))
QUARRELS = 128

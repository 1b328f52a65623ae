"""Rent at midnight, stock at dawn. Money only moves between wallets and the town's purse."""

from __future__ import annotations

from townlet.world._jit import kernel, leaf
from townlet.world.events import RENT_PAID, RENT_UNPAID, emit
from townlet.world.state import Town


@kernel
def collect_rent(t: Town) -> None:
    rent = t.rules["rent"]
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["present"] == 0:
            continue
        if me["wallet"] >= rent:
            me["wallet"] -= rent
            t.clock["purse"] += rent
            me["unpaid_days"] = 0
            emit(t, RENT_PAID, i, -1, -1, -1, 0.0)
        else:
            me["unpaid_days"] += 1
            emit(t, RENT_UNPAID, i, -1, -1, -1, 0.0)


@leaf
def economy(t: Town) -> None:
    clock = t.clock
    if clock["minute"] == t.rules["rent_minute"] and clock["tick"] > 0:
        collect_rent(t)
    if clock["minute"] == t.rules["restock_minute"]:
        for m in range(t.objects.shape[0]):
            t.objects[m]["stock"] = t.objects[m]["full"]
            t.checked[m] = -1

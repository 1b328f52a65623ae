"""Rent at midnight, stock at dawn. Money only moves between wallets and the town's purse; debts are not money."""

from __future__ import annotations

from townlet.world._jit import kernel, leaf
from townlet.world.events import RENT_PAID, RENT_UNPAID, emit
from townlet.world.state import Town


@leaf
def charge(t: Town, i: int, amount: int) -> None:
    """Take from the wallet what is there; the rest is owed."""
    me = t.residents[i]
    paid = min(amount, me["wallet"])
    me["wallet"] -= paid
    me["debt"] += amount - paid
    t.clock["purse"] += paid


@leaf
def pay(t: Town, i: int, amount: int) -> None:
    """Income: debts first."""
    me = t.residents[i]
    kept = amount - min(amount, me["debt"])
    me["debt"] -= amount - kept
    me["wallet"] += kept
    t.clock["purse"] -= kept


@kernel
def collect_rent(t: Town) -> None:
    """The rent and what is owed fall due; a day that ends in debt counts as unpaid."""
    for i in range(t.residents.shape[0]):
        me = t.residents[i]
        if me["present"] == 0:
            continue
        due = t.rules["rent"] + me["debt"]
        me["debt"] = 0
        charge(t, i, int(due))
        if me["debt"] == 0:
            me["unpaid_days"] = 0
            emit(t, RENT_PAID, i, -1, -1, -1, 0.0)
        else:
            me["unpaid_days"] += 1
            emit(t, RENT_UNPAID, i, -1, -1, -1, 0.0)


@leaf
def economy(t: Town) -> None:
    clock = t.clock
    if clock["minute"] == t.rules["rent_at"] and clock["tick"] > 0:
        collect_rent(t)
    if clock["minute"] == t.rules["refill_at"]:
        for m in range(t.objects.shape[0]):
            t.objects[m]["stock"] = t.objects[m]["full"]
            t.checked[m] = -1

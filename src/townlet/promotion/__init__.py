"""Which policy the town runs by: gates on scorecards, a hash-chained ledger of decisions, and the way back."""

"""From recipe, base and lock to a plan: pure values, nothing executed."""

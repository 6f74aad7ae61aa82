"""Fast passes for searches: the oracle, and the forms of a network that it asks."""

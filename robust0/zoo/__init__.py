"""Released checkpoints: cards, where they come from, fetching, checking and publishing them."""

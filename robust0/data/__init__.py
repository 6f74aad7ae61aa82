"""Datasets: where images come from, their ids and fingerprints, and how training sees them."""

"""Proofs for classifiers that vote over views, look under masks, or are smoothed by ablation."""

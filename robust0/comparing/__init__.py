"""Audits or certificates side by side, on the images they have in common."""

"""Why one-step l0 training collapses: spectra, landscapes, overlaps, and what runs recorded."""

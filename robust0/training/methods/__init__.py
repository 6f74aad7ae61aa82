"""Training methods: what a step does. Settings are read without torch."""

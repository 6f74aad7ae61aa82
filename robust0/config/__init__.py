"""Recipes: YAML in, frozen validated objects out; nothing here but ``build`` imports torch."""

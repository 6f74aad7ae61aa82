"""Recipes: YAML in, frozen validated objects out."""

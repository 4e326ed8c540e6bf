"""Commands about recipes: list, show, new, lint, rules."""

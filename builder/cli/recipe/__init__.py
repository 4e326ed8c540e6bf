"""Commands about recipes, layers and rules: list, show, new, lint, rules."""

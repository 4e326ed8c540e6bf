"""Models of recipes, bases, layers, locks and plans: frozen, strict values; and the readers of their files."""

"""What recipes, bases, layers and locks are: frozen, strict values without I/O."""

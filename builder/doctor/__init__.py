"""What can go wrong on a machine that serves recipes: small checks, each with a message and a fix."""

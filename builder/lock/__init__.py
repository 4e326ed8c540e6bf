"""`builder lock`: resolves, compares and writes pins of bases, packages, wheels and sources."""

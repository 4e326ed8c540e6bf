"""Reading, resolving, comparing and writing the lock."""

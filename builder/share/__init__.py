"""Images of the store for others: a read-only registry, and docker daemons that pull from it."""

"""The command line: one module for each command, grouped by what it is about, and what the commands share."""

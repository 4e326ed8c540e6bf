"""What was built, from what."""

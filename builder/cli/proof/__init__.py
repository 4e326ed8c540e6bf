"""The parts of `builder verify`: whose plan an image has, and its variations."""

"""The parts of `builder verify`: whose plan an image has, who vouches for it, and its variations."""

"""What tests of several parts share: small projects, inputs made in Python, a mirror, an engine without processes."""

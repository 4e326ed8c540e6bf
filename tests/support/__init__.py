"""Code that several tests share: small projects, inputs made in Python, a mirror, an engine without processes."""

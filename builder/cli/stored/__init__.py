"""Commands about the store: images, gc; and the built images that a command can offer."""

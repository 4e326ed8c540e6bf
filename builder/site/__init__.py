"""A static catalogue of images: reads what a store or a registry says of each, and writes HTML pages."""

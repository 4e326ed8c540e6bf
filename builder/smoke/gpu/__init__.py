"""The gpu tier: checks that run the image in docker on a GB10."""

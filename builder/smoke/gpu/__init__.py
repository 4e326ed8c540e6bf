"""The gpu tier: checks that run the image on a GB10."""

"""Commands and options that share images and layers between machines."""

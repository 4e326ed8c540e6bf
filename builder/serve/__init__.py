"""How a recipe's image is run on a Spark: as a command, a compose file or a unit."""

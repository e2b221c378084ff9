"""The commands that the kit adds to `dtensor-registry`."""

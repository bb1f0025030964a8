"""A run across machines: centre, hospitals, Flower."""

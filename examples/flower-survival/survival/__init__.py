"""A weighted Cox regression over hospitals with Flower."""

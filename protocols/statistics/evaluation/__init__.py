"""How good a model is on the rows of several parties, from one secure sum."""

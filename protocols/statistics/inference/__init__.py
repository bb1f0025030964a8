"""Standard errors and intervals of a model's coefficients, from secure sums."""

"""What sums over rows tell of a model."""

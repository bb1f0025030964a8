"""A clinical study from its first table to its last figure, by secure sums."""

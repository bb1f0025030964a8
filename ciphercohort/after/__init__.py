"""What follows a training: evaluation, standard errors, each by secure sums."""

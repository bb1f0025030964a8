"""What rows add to the sums of a clinical study; loaded for a sheet that names one of them."""

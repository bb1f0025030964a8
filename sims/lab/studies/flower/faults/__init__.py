"""What a fault of one client costs on a real SuperLink: plain, secure sums, SecAgg+."""

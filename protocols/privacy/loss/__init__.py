"""What noise costs, and what was spent."""

"""What a run costs, from its plan."""

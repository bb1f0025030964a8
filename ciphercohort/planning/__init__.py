"""What a run will promise and cost, before any key."""

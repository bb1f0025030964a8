"""What is agreed: plans, and what a protocol is."""

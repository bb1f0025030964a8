"""What must be trusted of a party: its secrets, and what is made of them; see README.md."""

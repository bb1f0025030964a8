"""One data owner: key share, private rows, policy, and the state machine that answers requests."""

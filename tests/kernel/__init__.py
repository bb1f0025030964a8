"""The kernel by itself: no plan, no message."""

"""Laws of noise, and how they are drawn."""

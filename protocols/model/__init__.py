"""An encrypted model: plan, rounds."""

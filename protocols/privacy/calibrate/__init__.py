"""Calibration: from public figures and a wish to the plan of a run, the same for everybody."""

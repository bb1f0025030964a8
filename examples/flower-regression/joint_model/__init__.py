"""One model over several hospitals' rows."""

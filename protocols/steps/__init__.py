"""Steps that protocols share."""

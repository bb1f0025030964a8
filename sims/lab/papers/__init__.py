"""The papers' tables and figures: one file each, `cohort reproduce`."""

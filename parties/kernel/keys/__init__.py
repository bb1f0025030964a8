"""A party's keys in a run under threshold CKKS."""

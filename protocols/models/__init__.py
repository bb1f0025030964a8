"""One model family per file: what an owner computes on its rows in plaintext."""

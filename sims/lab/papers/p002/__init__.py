"""Items of paper 002."""

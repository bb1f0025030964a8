"""Items of paper 001."""

"""Items of paper 004."""

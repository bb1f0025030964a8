"""Items of paper 000."""

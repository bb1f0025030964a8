"""Items of paper 003."""

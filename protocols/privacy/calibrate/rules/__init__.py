"""How rules of secure sums are made of public figures (`sums.Case`): a file for each family."""

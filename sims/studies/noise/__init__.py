"""How noise, accuracy, time and traffic grow with the number of clients: one engine, one report.

grid          what is measured: cells and seeds
settings      from a cell to a certified setting
theory        every prediction, with its formula
twins         a cell in plaintext, all seeds at once
exact         LOOKS AT SECRETS: exact noise polynomials, in simulations alone
watched_rows, watched_sums    encrypted runs, stage by stage
store, runner                 append-only results; spawned workers, resumable
slopes, tables, figures, page what comes out
cost          the same engine on the planner's figures
"""

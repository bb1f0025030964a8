"""How noise, accuracy, time and traffic grow with the number of clients: one engine, one report.

grid, source      what is measured: cells, seeds, rows
components        what is measured beside which formula
twins             a cell in plaintext, all seeds at once
watched, stages,
exact             LOOKS AT SECRETS: encrypted runs, stage by stage, in simulations alone
store             append-only results; spawned workers, resumable
tables, slopes    tidy tables, fitted slopes
figures, gallery  plots, and which a study has
findings, report  sentences, tables and the page
cost              cost against rows, columns and ring, from the planner
"""

"""How noise, accuracy, time and traffic grow with the number of clients: one engine, one report.

grid, grid_file               what is measured: cells and seeds
source, settings              rows of a cell, and what is run on them
components, theory, traffic   what is measured beside which formula
twins                         a cell in plaintext, all seeds at once
exact                         LOOKS AT SECRETS: exact noise polynomials, in simulations alone
watched, watched_rows, watched_sums, stages    encrypted runs, stage by stage
measurement, store, runner    append-only results; spawned workers, resumable
slopes, tables, figures, plots_of_study, page, output    what comes out
cost                          cost against rows, columns and ring, from the planner
"""

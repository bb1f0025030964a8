"""A run as pages and folders: HTML, plots, notebook."""

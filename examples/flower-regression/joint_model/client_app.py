"""A hospital: its rows never leave it in the clear."""

from pathlib import Path

from ciphercohort import client_app

from .data import load_rows

app = client_app(rows=load_rows, schema=Path(__file__).with_name("schema.json"))

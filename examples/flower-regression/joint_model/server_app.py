"""The coordinator: plans the run by its run configuration, and gets the model."""

from pathlib import Path

from ciphercohort import server_app

app = server_app(schema=Path(__file__).with_name("schema.json"))

"""What came out of a run: model, promise, figures, documents."""

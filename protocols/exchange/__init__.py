"""Messages, documents and files: what travels, and what is kept."""

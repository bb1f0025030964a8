"""What is computed: pure protocol code, no files, no sockets, no secret keys."""

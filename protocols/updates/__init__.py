"""One update rule per file, written once for plaintext and ciphertext."""

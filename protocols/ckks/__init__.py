"""OpenFHE's public half: context, packing, polynomial, circuit, ciphertext."""

from protocols.platform import check_platform, import_failure

check_platform()
try:
    import openfhe  # noqa: F401  # fails here, once, with a cause and a cure
except ImportError as error:
    raise import_failure(error) from error

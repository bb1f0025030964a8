"""OpenFHE's public half: context, packing, polynomial, circuit, ciphertext."""

from protocols.errors import PlatformError

try:
    import openfhe  # noqa: F401  # fails here, once, with a cause and a cure
except ImportError as error:
    raise PlatformError(
        f"openfhe does not load ({error}; is LD_LIBRARY_PATH set?): it is not installed, is another"
        " interpreter's, or the system's libgomp.so.1, or a new enough libstdc++, is missing; "
        "`python -m protocols.platform` says what is needed, and the cure"
    ) from error

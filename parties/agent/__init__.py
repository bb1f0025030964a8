"""The party agent: its folder, sockets, store and consent."""

import importlib.util

if importlib.util.find_spec("openfhe") is None:  # one that does not load says so: protocols.ckks
    from protocols.platform import guard

    guard()

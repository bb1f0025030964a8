"""Waits of Flower's grid that last longer than what they wait for: a private part of 1.30 and 1.41.

A reply can be pulled before its content has arrived. Flower then looks again after 1 s, 2 s, up to
10 s, and gives up after 500 looks.
"""

from __future__ import annotations

import logging
from importlib import import_module

log = logging.getLogger(__name__)

# Looks for content that is on its way: the first, the longest wait [s]; as many as its time allows.
WAITS = {"initial_backoff": 0.05, "backoff_cap": 1.0, "max_tries_per_object": None}


def shorten_waits() -> bool:
    """Look for content sooner, in this process; whether the installed Flower lets itself be told.

    Where it does not, replies are late by a second or more, and nothing else changes.
    """
    try:
        pull = import_module("flwr.supercore.inflatable.inflatable_utils").pull_objects
        defaults = pull.__kwdefaults__
        if not WAITS.keys() <= defaults.keys():
            raise AttributeError("other parameters")
    except (ImportError, AttributeError) as error:
        log.warning("this Flower pulls objects otherwise (%s): replies come a second late", error)
        return False
    defaults.update(WAITS)
    return True

"""A process that gives up what it does not need: files, network, and signals to others (Landlock).

Rules are Linux's own (man 7 landlock), since 5.13; each later version of them takes more. Where
there are none, nothing is given up, and `enter` says so.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES, _PATH_BENEATH, _VERSION = 38, 1, 1
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
# By version: rights on files, on TCP, and scopes (abstract sockets, signals).
_FILES = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
SYSTEM = (
    *("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types"),
    *("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system"),
)


def enter(packages: Iterable[str]) -> str:
    """Of this thread and those that it starts; what holds from now on, in words.

    packages: this project's. Files that Python and its libraries are loaded from stay readable.
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return "none: this system has no Landlock"
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    if version < 1:
        return "none: this system has no Landlock"
    files = (1 << _FILES[min(version, max(_FILES))]) - 1
    network, scopes = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    attributes = struct.pack("=QQQ", files, network, scopes)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    if rules < 0:
        return "none: Landlock refused its rules"
    for path in (*SYSTEM, *_python(packages)):
        with suppress(OSError):
            _allow(libc, rules, path)
    ended = libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(
        _RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0)
    )
    os.close(rules)
    if ended:
        return "none: Landlock did not take its rules"
    beside = ", no TCP" * bool(network) + ", no signals to others" * bool(scopes)
    return f"Landlock {version}: reads programs alone, writes nothing{beside}"


def _allow(libc: ctypes.CDLL, rules: int, path: str) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = _EXECUTE | _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
        rule = struct.pack("=Qi", rights, handle)
        libc.syscall(
            _ADD, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0)
        )
    finally:
        os.close(handle)


def _python(packages: Iterable[str]) -> list[str]:
    """Where Python's own files, its libraries and this project's packages are."""
    beneath = [os.path.realpath(each) for each in (sys.prefix, sys.base_prefix)]
    found = [os.path.join(each, own) for each in beneath for own in ("lib", "lib64", "bin")]
    for path in filter(os.path.isdir, sys.path):
        is_library = os.path.basename(path) in ("site-packages", "dist-packages")
        found += [path] if is_library else [os.path.join(path, name) for name in packages]
    return [path for path in found if os.path.exists(path)]

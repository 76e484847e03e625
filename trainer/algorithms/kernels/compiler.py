"""Compiles a source with NVRTC, CUDA's compiler in a library: `compiler.py SOURCE LIBRARIES OPTION...`.

It is a program of its own because the library may crash: NVRTC 13.0 does where it is given all of our sources
at once. The libraries, whose names are separated by commas, are tried in turn. Standard output is the version
of NVRTC, a line, and then the binary; standard error is what is wrong, if anything is. Standard library only.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def main() -> None:
    """Compiles what the command line says."""
    source, names, *options = sys.argv[1:]
    library = _load(names.split(","))
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    binary = _compile(library, Path(source), options)
    sys.stdout.buffer.write(f"{major.value}.{minor.value}\n".encode() + binary)


def _load(names: list[str]) -> ctypes.CDLL:
    failure = ""
    for name in names:
        try:
            for part in Path(name).parent.glob("libnvrtc-builtins.so.*") if "/" in name else ():
                ctypes.CDLL(str(part), ctypes.RTLD_GLOBAL)  # which the library looks for by name alone
            library = ctypes.CDLL(name)
        except OSError as error:
            failure = str(error)
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    sys.exit(f"NVRTC cannot be loaded: {failure}")


def _compile(library: ctypes.CDLL, source: Path, options: list[str]) -> bytes:
    headers = sorted(source.parent.glob("*.cuh"))
    texts = (ctypes.c_char_p * len(headers))(*(header.read_bytes() for header in headers))
    names = (ctypes.c_char_p * len(headers))(*(header.name.encode() for header in headers))
    given = (ctypes.c_char_p * len(options))(*map(str.encode, options))
    program, name = ctypes.c_void_p(), source.name.encode()
    created = library.nvrtcCreateProgram(
        ctypes.byref(program), source.read_bytes(), name, len(headers), texts, names
    )
    _check(library, created)
    if library.nvrtcCompileProgram(program, len(options), given):
        sys.exit(_read(library, "ProgramLog", program).rstrip(b"\0").decode(errors="replace").strip())
    return _read(library, "CUBIN", program)


def _read(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, data))
    return data.raw


def _check(library: ctypes.CDLL, result: int) -> None:
    if result:
        sys.exit(library.nvrtcGetErrorString(result).decode())


if __name__ == "__main__":
    main()

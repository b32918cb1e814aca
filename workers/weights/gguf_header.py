"""A GGUF file's header, read in Python alone: bounded, and checked before native code sees the file.

Format: the GGUF specification (versions 2 and 3, little-endian). Native readers trust lengths, kinds and offsets.
"""

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.errors import EngineError, FaultKind

MAGIC, VERSIONS = b"GGUF", (2, 3)
_MOST_HEADER_BYTES = 512 << 20
_MOST_DIMENSIONS, _MOST_NAME_BYTES = 4, 1 << 16
_DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_VALUES = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
# Of each kind of tensor, weights per block and bytes per block (ggml's type traits).
_KINDS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    30: (1, 2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The content of a GGUF header."""

    tensors: dict[str, tuple[int, ...]]  # their shapes as the file gives them, by name
    weights: int  # of all tensors together
    metadata: dict[str, Any]  # single values alone; an array's is its length


class _Broken(Exception):
    """The fault, in a few words."""


def read_header(source: Path) -> Header:
    """Read and check a file's header against the file.

    Raises:
        EngineError: checkpoint_missing, checkpoint_corrupt, or unsupported_setting for a kind of tensor that is not
            read here.
    """
    if not source.is_file():
        raise EngineError(FaultKind.checkpoint_missing, f"no file {source}", remedy="check the checkpoint's path")
    try:
        with source.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _Reader(content, source).header()
    except (_Broken, struct.error, UnicodeDecodeError, ValueError, OSError) as error:
        what = str(error) if isinstance(error, _Broken) else "its header is damaged"
        raise EngineError(
            FaultKind.checkpoint_corrupt, f"{source}: is not a whole GGUF file ({what})", remedy="fetch it again"
        ) from error


class _Reader:
    """Reads on from a position, never past the end."""

    def __init__(self, content: mmap.mmap, source: Path) -> None:
        self._content, self._source = content, source
        self._size, self._at = len(content), 0
        self._end = min(self._size, _MOST_HEADER_BYTES)

    def header(self) -> Header:
        if self._take(4) != MAGIC:
            raise _Broken("it does not begin with GGUF")
        version = self._number("<I")
        if version not in VERSIONS:
            raise _Broken(f"version {version}")
        tensors, pairs = self._number("<Q"), self._number("<Q")
        self._require_room(tensors * 24 + pairs * 13, "it announces more entries than it has room for")
        metadata = self._each(pairs, self._value_of_a_key, "metadata key")
        infos = self._each(tensors, self._tensor, "tensor")
        self._require_data(infos, metadata.get("general.alignment", _DEFAULT_ALIGNMENT))
        shapes = {name: shape for name, (shape, _, _) in infos.items()}
        return Header(tensors=shapes, weights=sum(map(math.prod, shapes.values())), metadata=metadata)

    def _each(self, count: int, read: Callable[[], Any], what: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(count):
            name = self._text(most=_MOST_NAME_BYTES)
            if name in found:
                raise _Broken(f"{what} {name[:80]!r} twice")
            found[name] = read()
        return found

    def _value_of_a_key(self) -> Any:
        return self._value(self._number("<I"))

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            return self._number(self._format(kind))
        inner, count = self._number("<I"), self._number("<Q")
        if inner == _STRING:
            self._require_room(count * 8, "a list longer than the file")
            for _ in range(count):
                self._text()
        else:
            size = struct.calcsize(self._format(inner))
            self._require_room(count * size, "a list longer than the file")
            self._at += count * size
        return int(count)

    def _format(self, kind: int) -> str:
        if kind not in _VALUES:
            raise _Broken(f"a value of kind {kind}")  # a list of lists among them: no reader takes one
        return _VALUES[kind]

    def _tensor(self) -> tuple[tuple[int, ...], int, int]:
        count = self._number("<I")
        if not 1 <= count <= _MOST_DIMENSIONS:
            raise _Broken(f"a tensor of {count} dimensions")
        shape = tuple(self._number("<Q") for _ in range(count))
        if min(shape) < 1 or math.prod(shape) >= 1 << 62:
            raise _Broken(f"a tensor of shape {shape}")
        return shape, self._number("<I"), self._number("<Q")

    def _require_data(self, infos: dict[str, tuple[tuple[int, ...], int, int]], alignment: Any) -> None:
        """Check that every tensor's data lies within the file."""
        if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise _Broken(f"general.alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        for name, (shape, kind, offset) in infos.items():
            if kind not in _KINDS:
                raise EngineError(
                    FaultKind.unsupported_setting,
                    f"{self._source}: tensor {name[:80]!r} is of kind {kind}, which is not read here",
                    remedy="convert the original model with mlx_lm.convert and use source=local",
                )
            per_block, block_bytes = _KINDS[kind]
            if shape[0] % per_block or offset % alignment:
                raise _Broken(f"tensor {name[:80]!r} does not fall into whole blocks")
            if start + offset + math.prod(shape) // per_block * block_bytes > self._size:
                raise _Broken(f"tensor {name[:80]!r} lies beyond the end of the file")

    def _text(self, *, most: int | None = None) -> str:
        length = self._number("<Q")
        if most is not None and length > most:
            raise _Broken(f"a name of {length} bytes")
        return self._take(length).decode("utf-8")

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, length: int) -> bytes:
        self._require_room(length, "cut short")
        self._at += length
        return self._content[self._at - length : self._at]

    def _require_room(self, length: int, otherwise: str) -> None:
        if self._at + length > self._end:
            raise _Broken(otherwise)

"""Which value each storage holds: the functionalization of a step.

A storage is known by the address of its StorageImpl. Addresses recur after a death, so the table holds a weak
reference on each storage it has met until the step ends: the memory of the content is freed as always, only the small
header stays and its address with it. Every write gives the storage a fresh value id.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .cuda import Staged
from .payload import Arena, Content
from .regions import OUT_OF_SIGHT
from .schema import DTYPES
from .shards import Part, local, part_of

DATA, PARAMETER, BUFFER, STATE, RANDOM, OBSERVED, UNWRITTEN = 1, 2, 3, 4, 5, 6, 7

# A window: (value, dtype, sizes, strides, offset). Value 0: absent, or not modelled.
Window = tuple[int, int, tuple[int, ...], tuple[int, ...], int]

ABSENT: Window = (0, 0, (), (), 0)

# A read of a small part of a large storage (a batch sliced from a data set) sends the part alone.
_SPAN_STORAGE_BYTES_MIN = 1 << 20
_SPAN_SHARE_MAX = 4
_ALL = 1 << 62  # Bytes.


# A tensor that an operation wrote or gave, the name of the argument that it is ("": a result), and its layout.
Written = tuple[torch.Tensor | None, str, Window]

_STRIDED = torch.strided


class Storage:
    """What the step knows of one storage."""

    __slots__ = (
        "alias", "content", "count", "dtype", "foreign", "laid", "leaf", "met", "name", "origin", "part", "pending",
        "role", "seen", "spans", "unwritten", "value", "version", "weak",
    )  # fmt: skip

    def __init__(self, weak: int, role: int, name: str, seen: int = 0) -> None:
        self.weak = weak
        self.seen = seen  # Epoch in which its value was last known to be its content (see StorageTable.epoch).
        self.version = -1  # PyTorch's count of its writes, as it is after the last one that was seen; -1: not noted.
        self.content: Content | None = None  # A copy of its value.
        self.alias = ""  # Name for the next leaf of it that is OBSERVED.
        self.part: tuple[Part, Window] | None = None  # Of a tensor that the ranks share: which, and where it lies.
        self.foreign = False  # Of a parameter that a partial step does not audit, or computed from such alone.
        self.role = role
        self.name = name
        self.value = 0  # 0: no value of it is known yet.
        self.dtype = 0
        self.met = torch.uint8  # The type of the tensor that it has its name of.
        self.count = 0
        self.leaf = False  # Its value is a leaf.
        self.origin = (0, 0)  # The leaf that it was first, and its dtype; 0: it was none yet.
        self.laid = False  # That was no leaf, but made of several (assembled.py).
        self.unwritten = False  # Made by empty() and never written since.
        self.spans: dict[tuple[int, int, int], int] | None = None
        # What takes what a collective writes meanwhile, and the bytes of the storage where that is.
        self.pending: list[tuple[int, int, Callable[[], None]]] = []

    def settle(self, tensor: torch.Tensor) -> None:
        """Something touches these bytes: what was written there is complete. Elsewhere it may be under way."""
        low, high = extent(tensor)
        if self.dtype not in (0, DTYPES.get(tensor.dtype)):
            low, high = 0, _ALL  # Read as another type, the storage is copied whole.
        due = [each for each in self.pending if each[0] < high and low < each[1]]
        self.pending = [each for each in self.pending if each not in due]
        for _, _, take in due:
            take()

    def await_all(self, take: Callable[[], None]) -> None:
        self.pending.append((0, _ALL, take))

    def await_part(self, tensor: torch.Tensor, take: Callable[[], None]) -> None:
        self.pending.append((*(extent(tensor) if tensor.numel() else (0, _ALL)), take))


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Bytes of its storage between the first of a tensor's and the last, which is left out."""
    if not tensor.numel():
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.storage_offset()
    return first * tensor.element_size(), (first + last + 1) * tensor.element_size()


def modelled(tensor: torch.Tensor) -> int:
    """DType of a tensor that can be described, otherwise 0."""
    if tensor.layout is not _STRIDED or tensor.is_neg() or tensor.is_meta or tensor.is_nested:
        return 0
    return DTYPES.get(tensor.dtype, 0)


def layout_of(tensor: torch.Tensor) -> Window:
    """A tensor's window, whatever value it has; ABSENT where it cannot be described."""
    code = modelled(tensor)
    return (0, code, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) if code else ABSENT


def wrote(tensor: torch.Tensor, name: str = "") -> Written:
    return tensor, name, layout_of(tensor)


def is_negated(tensor: torch.Tensor) -> bool:
    """Whether all that keeps a tensor from being described is that its memory holds the numbers with another sign."""
    return tensor.is_neg() and tensor.layout is _STRIDED and tensor.dtype in DTYPES and not tensor.is_nested


def kind_of(tensor: torch.Tensor) -> str:
    """What keeps a tensor from being described: "complex64", "sparse_coo", "nested" ..."""
    if tensor.is_nested:
        return "nested"
    kind = tensor.layout if tensor.layout is not _STRIDED else tensor.dtype
    return str(kind).removeprefix("torch.") + ("*" if tensor.is_neg() else "")


# Kinds of tensors that are described by their views as real numbers; many operations on these are modelled.
COMPLEX = ("complex64", "complex128", "complex32")


def has_view(tensor: torch.Tensor) -> bool:
    """Whether a tensor, or its one view as real numbers, can be described."""
    return bool(modelled(tensor)) or kind_of(tensor) in COMPLEX


def weightier(kind: str, other: str) -> str:
    """Of the kinds of two tensors, either of which may be none, the one that keeps an operation from being modelled."""
    return other if other and (not kind or kind in COMPLEX) else kind


def described(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or of complex numbers the view as real ones."""
    return stand_ins(tensor)[0] if tensor.is_complex() and kind_of(tensor) in COMPLEX else tensor


def stand_ins(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Tensors that can be described and hold what this one, which cannot, is made of: views on its memory. Operations
    on it are opaque, but what they depend on is known by them."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        if tensor.is_meta:
            return []
        if tensor.layout is torch.sparse_coo:
            parts = [tensor._indices(), tensor._values()]
        elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
        elif tensor.layout is not _STRIDED:
            return []
        elif tensor.is_nested:
            parts = [torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())]
        else:
            plain = torch._neg_view(tensor) if tensor.is_neg() else tensor
            plain = plain.conj() if plain.is_conj() else plain
            if plain.is_complex():
                plain = torch.view_as_real(plain)
            elif plain.dtype in _INTEGERS:
                whole = torch.empty(0, dtype=_INTEGERS[plain.dtype], device=plain.device)
                plain = whole.set_(plain.untyped_storage(), plain.storage_offset(), plain.shape, plain.stride())
            elif plain.dtype not in DTYPES:
                plain = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(plain.untyped_storage())
            parts = [plain]
    return [part for part in parts if modelled(part)]


# What quantised types and others are stored as.
_INTEGERS = {
    torch.qint8: torch.int8,
    torch.quint8: torch.uint8,
    torch.qint32: torch.int32,
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}


def was_computed(tensor: torch.Tensor) -> bool:
    """Whether autograd knows that a tensor, or what it is a view on, was made of others."""
    base = tensor._base
    return (tensor if base is None else base).grad_fn is not None


def _place_in(storage: torch.UntypedStorage, tensor: torch.Tensor) -> tuple[Any, ...]:
    return storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride()


class StorageTable:
    """The storages of one step and their values. Emits leaves as records; not thread-safe."""

    def __init__(self, arena: Arena, records: list[tuple[Any, ...]]) -> None:
        self._arena = arena
        self._records = records
        self._storages: dict[int, Storage] = {}
        self._last_value = 0
        self._last_payload = 0
        # In a partial step: counts the stretches of operations that were seen without a gap. What was computed in an
        # earlier one may have been changed by what was not seen.
        self.epoch = 0
        self.check_versions = False  # Whether even within an epoch writers may have been missed (backward).
        self.place: Callable[[], str] | None = None  # Names the place of a leaf that is OBSERVED. None: a whole step.
        self.computed: list[Storage] = []  # Written since the epoch began, in a partial step.
        self.unmodelled = ""  # Set to its kind when a tensor was read that cannot be described.
        # Parts that were taken of data and not read yet: the operation, and its module and line.
        self._parts: dict[tuple[Any, ...], tuple[str, str, str]] = {}

    def close(self) -> None:
        """Lets go of all weak references."""
        for entry in self._storages.values():
            torch.UntypedStorage._free_weak_ref(entry.weak)
        self._storages.clear()

    def fresh_value(self) -> int:
        self._last_value += 1
        return self._last_value

    @contextlib.contextmanager
    def unconfirmed(self) -> Iterator[None]:
        """What is read and written meanwhile are fake tensors, which nothing unseen writes."""
        place, self.place = self.place, None
        try:
            yield
        finally:
            self.place = place

    @property
    def last_value(self) -> int:
        return self._last_value

    def forget_since(self, value: int) -> None:
        """Forgets every value that is younger than `value`: the records that told of them are gone."""
        for entry in self._storages.values():
            if entry.value > value:
                entry.value, entry.leaf = 0, False
            if entry.origin[0] > value:
                entry.origin = (0, 0)
            if entry.spans:
                entry.spans = {span: known for span, known in entry.spans.items() if known <= value}

    def payload(self, content: Content) -> int:
        """Records a payload and returns its id."""
        self._last_payload += 1
        self._records.append(("data", self._last_payload, content))
        return self._last_payload

    def entry(self, tensor: torch.Tensor) -> Storage | None:
        """What is known of a tensor's storage; None if it was not met in this step."""
        return self._storages.get(tensor.untyped_storage()._cdata)

    def adopt(self, tensor: torch.Tensor, role: int = DATA, name: str = "") -> Storage:
        """Meets a tensor's storage; the first role and name given to it stay."""
        storage = tensor.untyped_storage()
        entry = self._storages.get(storage._cdata)
        if entry is None:
            entry = Storage(storage._weak_ref(), role, name, self.epoch)
            self._storages[storage._cdata] = entry
        elif name and not entry.name and not entry.value:
            entry.role, entry.name = role, name
        if name and entry.name == name:
            entry.met = tensor.dtype
        return entry

    def adopt_part(self, tensor: torch.Tensor, role: int, name: str, parameter: torch.Tensor | None = None) -> Storage:
        """Meets what this rank holds of a tensor, under the tensor's name. `parameter`: whose state it is. A storage is
        sent as it lies: where that is not row by row, it is one only with what lies so too (but see assembled.py)."""
        held, part = local(tensor), part_of(tensor, parameter)
        if held.layout is _STRIDED and not held.is_contiguous():
            name += f" by strides {tuple(held.stride())}"
        entry = self.adopt(held, role, name)
        if part is not None and entry.name == name and not entry.value:
            window = (0, modelled(held), held.shape, held.stride(), held.storage_offset())
            entry.part = (part, window)
        return entry

    def read(self, tensor: torch.Tensor, whole: bool = False) -> Window:
        """Window of a tensor about to be read. A storage without a value becomes a leaf now; `whole`: all of it, even
        where a small part is read, because a write is going to build on it."""
        code = modelled(tensor)
        if not code:
            if not is_negated(tensor):
                self.unmodelled = weightier(self.unmodelled, kind_of(tensor))
            return ABSENT
        storage = tensor.untyped_storage()
        entry = self._storages.get(storage._cdata)
        if entry is None:
            entry = self._stranger(tensor, storage)
        if entry.pending:
            entry.settle(tensor)
        if self.place is not None:
            self._confirm(entry, tensor, storage)
        if not entry.value:
            if entry.role in (DATA, OBSERVED) and not whole:
                window = self._read_span(entry, tensor, storage, code)
                if window is not None:
                    return self._told(window, storage, tensor)
            unseen = entry.unwritten or (not whole and was_computed(tensor))
            if unseen and entry.role == DATA and not entry.name:
                self._out_of_sight(entry, storage, code)
            else:
                self._materialise(entry, storage, code, name=self._leaf_name(entry, tensor))
        elif entry.dtype != code:
            self._reinterpret(entry, storage, code)
        window = (entry.value, code, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        return self._told(window, storage, tensor) if self._parts else window

    def note_part(self, whole: torch.Tensor, part: Any, operation: str, module: str, source: str) -> None:
        """A view was taken. Of data, a part that is read tells where it was taken: rows may have been lost there. (A
        split, which returns all parts, loses none.)"""
        if not isinstance(part, torch.Tensor) or part.numel() >= whole.numel() or not modelled(part):
            return
        storage = part.untyped_storage()
        entry = self._storages.get(storage._cdata)
        if entry is None or (entry.role == DATA and (entry.leaf or not entry.value)):
            self._parts[_place_in(storage, part)] = (operation, module, source)

    def _told(self, window: Window, storage: torch.UntypedStorage, tensor: torch.Tensor) -> Window:
        known = self._parts.pop(_place_in(storage, tensor), None) if self._parts else None
        if known is not None:
            self._records.append(("part", window, *known))
        return window

    def lend(self, tensor: torch.Tensor) -> None:
        """Somebody who is not seen holds the tensor's storage from now on, and may write it: numpy does. At each read
        its content tells whether he did, unless an operation wrote it since."""
        entry = self._storages.get(tensor.untyped_storage()._cdata)
        if entry is not None and entry.value and not entry.pending:
            self._lend(entry)

    def _lend(self, entry: Storage) -> None:
        storage = torch.UntypedStorage._new_with_weak_ptr(entry.weak)
        value, content = entry.value, self._arena.copy_storage(storage, 0, storage.nbytes())

        def confirm() -> None:
            held = torch.UntypedStorage._new_with_weak_ptr(entry.weak)
            if entry.value == value and same_content(held, content):
                entry.await_all(confirm)  # The copy serves again: a storage may be read often.
                return
            if entry.value == value:
                self._out_of_sight(entry, held, entry.dtype)
            self._lend(entry)

        entry.await_all(confirm)

    def _stranger(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> Storage:
        """Meets a storage that is read before anything was seen to write it."""
        entry = Storage(storage._weak_ref(), DATA, "", self.epoch)
        self._storages[storage._cdata] = entry
        # Numbers with a gradient, or that are no indices, may come from operations that were not seen.
        if self.place is not None and self.epoch and (was_computed(tensor) or tensor.is_floating_point()):
            entry.role = OBSERVED
        return entry

    def known(self, tensor: torch.Tensor) -> Storage | None:
        """The entry of a tensor whose value was computed in this epoch, and is its content still."""
        entry = self.entry(tensor) if has_view(tensor) else None
        if entry is None or not entry.value or entry.leaf or entry.seen != self.epoch:
            return None
        return entry if entry.version in (-1, _version(tensor)) else None

    def _confirm(self, entry: Storage, tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
        """Before a value is relied on in a partial step: where something unseen may have written the storage since, the
        value is confirmed by its content, or forgotten for a leaf that is observed."""
        if entry.seen == self.epoch:
            if not self.check_versions or entry.version in (-1, _version(tensor)):
                return
        elif entry.spans is not None:
            entry.spans = None
        if entry.value:
            if entry.content is None or not same_content(storage, entry.content):
                entry.value, entry.leaf, entry.content, entry.role = 0, False, None, OBSERVED
        elif entry.unwritten:
            entry.role = OBSERVED
        entry.unwritten = False
        entry.seen, entry.version = self.epoch, _version(tensor)

    def begin_epoch(self) -> None:
        """Something may have run unseen."""
        self.epoch += 1
        self.computed.clear()

    def keep_computed(self) -> None:
        """Copies what was computed in this epoch and is still held by someone, so that it can be confirmed later."""
        for entry in self.computed:
            kept = entry.value and not entry.leaf and entry.content is None and not entry.foreign
            if kept and not torch.UntypedStorage._expired(entry.weak):
                storage = torch.UntypedStorage._new_with_weak_ptr(entry.weak)
                entry.content = self._arena.copy_storage(storage, 0, storage.nbytes())
        self.computed.clear()

    def meet_data(self, tensors: list[torch.Tensor]) -> None:
        """Before anything was missed: what these hold was seen, or is older than the step."""
        for tensor in tensors:
            if has_view(tensor) and not was_computed(tensor):
                self.adopt(tensor)

    def expect(self, tensor: torch.Tensor, name: str) -> None:
        """A tensor comes in from what was not seen: where it is read before it is written, it is this leaf."""
        number = tensor.is_floating_point() or tensor.is_complex()
        if has_view(tensor) and number and self.known(tensor) is None:
            self.adopt(tensor, OBSERVED).alias = name

    def _leaf_name(self, entry: Storage, tensor: torch.Tensor | None = None) -> str:
        """`tensor`: what is read of it first, whose layout an input of a part has in both programs or is another."""
        if entry.role != OBSERVED or self.place is None:
            return entry.name
        alias, entry.alias = entry.alias, ""
        by_channels = tensor is not None and any(
            tensor.dim() == dims and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=layout)
            for dims, layout in ((4, torch.channels_last), (5, torch.channels_last_3d))
        )
        return (alias or self.place()) + (" by channels" if by_channels else "")

    def _materialise(
        self, entry: Storage, storage: torch.UntypedStorage, code: int, role: int = 0, name: str = ""
    ) -> None:
        item = _ITEM_BYTES[code]
        count = storage.nbytes() // item
        payload = 0
        if count:
            size = count * item
            content = self._arena.copy_storage(storage, 0, size)
            payload = self.payload(content)
            entry.content = content if self.place is not None else None
        entry.value, entry.dtype, entry.count, entry.leaf = self.fresh_value(), code, count, True
        if not entry.origin[0]:
            entry.origin = (entry.value, code)
        name = name or self._leaf_name(entry)
        self._records.append(("leaf", entry.value, code, count, role or entry.role, name, payload, entry.part))

    def _out_of_sight(self, entry: Storage, storage: torch.UntypedStorage, code: int) -> None:
        """The content was computed by nothing that was seen: a result of the unknown, no data. It has a counterpart
        in another run where that has the same content."""
        count = storage.nbytes() // _ITEM_BYTES[code]
        content = self._arena.copy_storage(storage, 0, count * _ITEM_BYTES[code], on_host=True)
        entry.value, entry.dtype, entry.count = self.fresh_value(), code, count
        entry.leaf = entry.unwritten = False
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        result = ((entry.value, code, (count,), (1,), 0), count, 0, "", self.payload(content) if count else 0)
        self._records.append(("op", OUT_OF_SIGHT, [[], digest], [result], 0, "", "", 0))

    def _read_span(
        self, entry: Storage, tensor: torch.Tensor, storage: torch.UntypedStorage, code: int
    ) -> Window | None:
        total = storage.nbytes()
        if total < _SPAN_STORAGE_BYTES_MIN or entry.unwritten or tensor.numel() == 0:
            return None
        low = tensor.storage_offset()
        high = low + 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        item = _ITEM_BYTES[code]
        if (high - low) * item * _SPAN_SHARE_MAX > total:
            return None
        if entry.spans is None:
            entry.spans = {}
        value = entry.spans.get((low, high, code), 0)
        if not value:
            payload = self.payload(self._arena.copy_storage(storage, low * item, (high - low) * item))
            value = entry.spans[(low, high, code)] = self.fresh_value()
            name = self._leaf_name(entry, tensor)
            self._records.append(("leaf", value, code, high - low, entry.role, name, payload, None))
        return (value, code, tuple(tensor.shape), tensor.stride(), 0)

    def _reinterpret(self, entry: Storage, storage: torch.UntypedStorage, code: int) -> None:
        """The storage is read as another type: an operation of its own, whose result is observed."""
        count = storage.nbytes() // _ITEM_BYTES[code]
        source = (entry.value, entry.dtype, (entry.count,), (1,), 0)
        payload = self.payload(self._arena.copy_storage(storage, 0, count * _ITEM_BYTES[code])) if count else 0
        entry.value, entry.dtype, entry.count, entry.leaf = self.fresh_value(), code, count, False
        self._records.append(("reinterpret", source, (entry.value, code, (count,), (1,), 0), count, payload))

    def read_for_overwrite(self, tensor: torch.Tensor) -> Window:
        """Window of a tensor whose content is about to be replaced unread. Where it covers the whole of a storage
        that has no value yet, the old content is of no interest: the window is absent."""
        code = modelled(tensor)
        if not code:
            self.unmodelled = weightier(self.unmodelled, kind_of(tensor))
            return ABSENT
        entry = self.adopt(tensor)
        storage = tensor.untyped_storage()
        if entry.pending:
            entry.settle(tensor)
        if self.place is not None:
            self._confirm(entry, tensor, storage)
        if not entry.value:
            if tensor.numel() * tensor.element_size() == storage.nbytes():
                return (0, code, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
            anonymous = entry.role == DATA and not entry.name
            self._materialise(entry, storage, code, UNWRITTEN if entry.unwritten and anonymous else 0)
        elif entry.dtype != code:
            self._reinterpret(entry, storage, code)
        return (entry.value, code, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())

    def write(
        self, tensor: torch.Tensor, in_place: bool = False, layout: Window | None = None
    ) -> tuple[Window, int, int]:
        """Gives a tensor's storage, just written, a fresh value: its window, the storage's count, the value before.
        `layout`: the tensor's, where that is known (see layout_of)."""
        _, code, sizes, strides, offset = layout or layout_of(tensor)
        if not code:
            return ABSENT, 0, 0
        storage = tensor.untyped_storage()
        entry = self._storages.get(storage._cdata)
        if entry is None:
            entry = Storage(storage._weak_ref(), DATA, "", self.epoch)
            self._storages[storage._cdata] = entry
        count = storage.nbytes() // _ITEM_BYTES[code]
        base = entry.value if entry.dtype == code and entry.count == count else 0
        self._last_value = value = self._last_value + 1
        entry.value, entry.dtype, entry.count = value, code, count
        entry.leaf = entry.unwritten = False
        if self.place is not None:
            # PyTorch counts a write in place once the operation has returned to autograd.
            entry.seen, entry.version, entry.content = self.epoch, _version(tensor) + in_place, None
            self.computed.append(entry)
        return (value, code, sizes, strides, offset), count, base

    def write_leaf(self, tensor: torch.Tensor, role: int, name: str) -> None:
        """The whole of a tensor's storage was just written with content from outside of the step."""
        entry = self.adopt(tensor)
        entry.role, entry.name, entry.unwritten, entry.spans = role, name, False, None
        entry.seen, entry.version = self.epoch, -1
        self._materialise(entry, tensor.untyped_storage(), modelled(tensor))

    def write_leaf_of(self, tensor: torch.Tensor, content: torch.Tensor, role: int, name: str) -> None:
        """The whole of a tensor's storage is a leaf whose content lies in another tensor."""
        entry, code, count = self.adopt(tensor), modelled(tensor), content.numel()
        if not tensor.is_contiguous() or tensor.untyped_storage().nbytes() != count * _ITEM_BYTES[code]:
            raise ValueError("a leaf that does not fill its storage")
        payload = self.payload(self._arena.copy_tensor(content)) if count else 0
        entry.value, entry.dtype, entry.count, entry.leaf = self.fresh_value(), code, count, True
        entry.unwritten = False
        self._records.append(("leaf", entry.value, code, count, role, name, payload, None))

    # What stands for the storages of real tensors while a compiled graph is followed on fake ones.

    def alias(self, tensor: torch.Tensor, entry: Storage) -> int:
        """Makes a fake tensor's storage stand for a known one; returns the key for drop_alias."""
        key = tensor.untyped_storage()._cdata
        self._storages[key] = entry
        return key

    def drop_alias(self, key: int) -> None:
        self._storages.pop(key, None)

    def entry_of_value(self, value: int, count: int, code: int) -> Storage:
        """The storage that holds a value, or a stand-in of `count` elements for a part that was read by itself."""
        for entry in self._storages.values():
            if entry.value == value:
                return entry
        part = Storage(0, DATA, "")
        part.value, part.dtype, part.count, part.leaf = value, code, count, True
        return part

    def forget(self, tensor: torch.Tensor) -> None:
        """A tensor's storage changed in a way that no operation describes: its next read makes it a leaf."""
        entry = self._storages.get(tensor.untyped_storage()._cdata)
        if entry is not None:
            entry.value, entry.leaf, entry.spans = 0, False, None

    def unseen(self, tensor: torch.Tensor) -> None:
        """Something is about to write a tensor's storage that will not be recorded."""
        entry = self._storages.get(tensor.untyped_storage()._cdata)
        if entry is not None:
            entry.seen = -1


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def same_content(storage: torch.UntypedStorage, content: Content) -> bool:
    if storage.nbytes() != len(content):
        return False
    if isinstance(content, Staged):
        content = memoryview(bytearray(content.on_host()))
    if storage.device.type != "cpu":
        with torch._C._DisableTorchDispatch():
            storage = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).cpu().untyped_storage()
    return not len(content) or not _memcmp(storage.data_ptr(), _address(content), len(content))


def _address(content: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(content))


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_ITEM_BYTES = {code: dtype.itemsize for dtype, code in DTYPES.items()}

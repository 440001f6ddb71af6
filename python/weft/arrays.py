# SPDX-License-Identifier: MIT
"""Arrays of other libraries as memory, and memory of weft as arrays.

Operations take numpy arrays and PyTorch tensors, and whatever has __array_interface__ or
__cuda_array_interface__. What weft allocates is an array of the library that its dtype is of:
numpy.float32 gives numpy arrays, torch.bfloat16 tensors. Neither library is imported before it is
needed.
"""
from __future__ import annotations

import math
import sys
from operator import index
from typing import Any, Callable, Iterable, NamedTuple

from . import dlpack
from .abi import Dtype
from .library import InvalidArgumentError
from .objects import Native, Uncopied

# Of numpy, of packages that extend it (ml_dtypes), and of PyTorch.
_DTYPES = {"int32": Dtype.INT32, "int64": Dtype.INT64, "bfloat16": Dtype.BF16,
           "float16": Dtype.FP16, "float32": Dtype.FP32, "float64": Dtype.FP64,
           "uint8": Dtype.UINT8, "float8_e4m3fn": Dtype.FP8_E4M3, "int8": Dtype.INT8}
INDEX_TYPES = {"int32": Dtype.INT32, "int64": Dtype.INT64}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_ITEM_BYTES = {"bfloat16": 2, "float8_e4m3fn": 1}
# In numpy without ml_dtypes: the same bits.
_NUMPY_BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8"}


class View(NamedTuple):
    """What an operation must know of an array."""

    address: int | None  # None: the array is empty
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in bytes; None: dense, row after row
    dtype: str  # its name in numpy and PyTorch
    item_bytes: int
    is_on_gpu: bool  # or where a GPU reaches it
    is_writable: bool

    @property
    def num_bytes(self) -> int:
        return self.item_bytes * math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        return self.item_bytes * math.prod(self.shape[1:])


_tensor: tuple[type, ...] = ()  # torch.Tensor, once PyTorch was imported


def is_tensor(array: Any) -> bool:
    global _tensor
    if not _tensor and "torch" in sys.modules:
        _tensor = (sys.modules["torch"].Tensor,)
    return isinstance(array, _tensor)


def _dense_strides(shape: tuple[int, ...], item_bytes: int) -> tuple[int, ...]:
    strides = [item_bytes] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * max(shape[i], 1)
    return tuple(strides)


_tensor_dtypes: dict[Any, str] = {}  # names of dtypes of PyTorch that were met


def _name_of_tensor_dtype(dtype: Any) -> str:
    name = _tensor_dtypes.get(dtype)
    if name is None:
        name = _tensor_dtypes[dtype] = str(dtype).removeprefix("torch.")
    return name


def _view_of_tensor(tensor: Any, name: str, cuda_device: int | None) -> View:
    device = tensor.get_device()  # of the host: -1
    if device >= 0 and cuda_device is not None and device != cuda_device:
        raise InvalidArgumentError(f"{name} is on {tensor.device}; the communicator's device is "
                                   f"cuda:{cuda_device}")
    if str(tensor.layout) != "torch.strided":
        raise InvalidArgumentError(f"{name} is {tensor.layout}; it must be a dense tensor")
    if tensor.is_neg() or tensor.is_conj() or tensor.is_meta:
        # The memory does not hold the elements of such a tensor.
        kind = "on device meta" if tensor.is_meta else \
            "a negative view: resolve_neg() makes a copy" if tensor.is_neg() else \
            "a conjugate view: resolve_conj() makes a copy"
        raise InvalidArgumentError(f"{name} is {kind}")
    item_bytes = tensor.element_size()
    strides = None if tensor.is_contiguous() else tuple(s * item_bytes for s in tensor.stride())
    is_on_gpu = device >= 0 or (cuda_device is not None and tensor.is_pinned())
    return View(tensor.data_ptr() or None, tuple(tensor.shape), strides,
                _name_of_tensor_dtype(tensor.dtype), item_bytes, is_on_gpu, True)


def _view_of_interface(interface: dict[str, Any], dtype: str, is_on_gpu: bool) -> View:
    address, is_read_only = interface["data"]
    shape = tuple(interface["shape"])
    if interface["typestr"][1] not in "biufcV":
        raise InvalidArgumentError(f"dtype is {dtype}; allowed are numbers, and structs of them")
    item_bytes = int(interface["typestr"][2:])
    if interface["typestr"][0] == ">":
        dtype = "big-endian " + dtype
    strides = interface.get("strides")
    if strides is not None and (0 in shape or tuple(strides) == _dense_strides(shape, item_bytes)):
        strides = None
    return View(address or None, shape, strides, dtype, item_bytes, is_on_gpu, not is_read_only)


def address_of(array: Any, name: str, dtypes: tuple[str, ...], shape: tuple[int | None, ...],
               cuda_device: int | None, writable: bool = False) -> int | None:
    """The address of a dense array, whose type is one of dtypes (none: any) and whose shape is
    [*shape] (None: any size). A tensor that is just so needs no closer look, which takes ten times
    as long: that of the first tensor, and type, makes them known."""
    try:
        if _tensor_dtypes.get(array.dtype) in dtypes and array.shape == shape and \
                array.is_contiguous() and not array.is_neg() and \
                array.get_device() == (-1 if cuda_device is None else cuda_device):
            address = array.data_ptr()
            if address:
                return address
    except (AttributeError, RuntimeError):  # no tensor, or one without an address
        pass
    seen = view(array, name, cuda_device=cuda_device, writable=writable)
    require(seen, name, dtypes, shape)
    return seen.address


def recognise_nothing(*unused: Any) -> bool:
    return False


def recogniser(cuda_device: int | None, *found_right: Any) -> Callable[..., bool]:
    """A function that tells, in 0.15 us for several, whether other arrays are like these: of the
    same types, shapes, strides, and on the same device; elements and addresses may be others. It
    has PyTorch's guards of compiled code, which keep no array. Where these do not come to be, it
    recognises nothing."""
    device = -1 if cuda_device is None else cuda_device
    # Tensors elsewhere may be right by where exactly they lie (pinned), and so may those of none.
    if not all(is_tensor(array) and array.get_device() == device and array.data_ptr()
               for array in found_right):
        return recognise_nothing
    try:
        from torch._C._dynamo.guards import TensorGuards

        return TensorGuards(*found_right, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    except (ImportError, TypeError):  # of other versions
        return recognise_nothing


def view(array: Any, name: str, *, cuda_device: int | None = None, writable: bool = False,
         dense: bool = True) -> View:
    """Looks at an argument `name`, which must be where the communicator is: on a GPU, or, None, on
    the host."""
    on_gpu = cuda_device is not None
    if is_tensor(array):
        seen = _view_of_tensor(array, name, cuda_device)
    elif hasattr(array, "__array_interface__"):
        seen = _view_of_interface(array.__array_interface__, str(array.dtype), False)
    elif hasattr(array, "__cuda_array_interface__"):
        seen = _view_of_interface(array.__cuda_array_interface__, str(array.dtype), True)
    else:
        raise InvalidArgumentError(f"{name} is of type {type(array).__name__}; allowed are numpy "
                                   "arrays, tensors, and what has their interfaces")
    if writable and not seen.is_writable:
        raise InvalidArgumentError(f"{name} is read-only, but is an output")
    if dense and seen.strides is not None:
        raise InvalidArgumentError(f"{name} is not contiguous (in C order)")
    if 0 in seen.shape:
        return seen._replace(address=None)
    if seen.is_on_gpu is not on_gpu:
        wanted = "on the GPU" if on_gpu else "in memory of the host"
        raise InvalidArgumentError(f"{name} must be {wanted}, as the communicator's machine is")
    return seen


def check_rows(seen: View, name: str) -> None:
    """[rows, columns], of which only a row must be dense."""
    if len(seen.shape) != 2:
        raise InvalidArgumentError(f"{name} has shape {seen.shape}; allowed is [rows, columns]")
    if seen.strides and (seen.strides[1] != seen.item_bytes or seen.strides[0] < seen.row_bytes):
        raise InvalidArgumentError(f"{name} has rows that are not contiguous, or that do not lie "
                                   f"one after another: its strides are {seen.strides} bytes")


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        size is None or size == given for size, given in zip(wanted, shape))


def require(seen: View, name: str, dtypes: tuple[str, ...], shape: tuple[int | None, ...]) -> None:
    """Refuses another type or shape; no types and None stand for any. Where numpy lacks a type, its
    bits will do."""
    is_right_type = not dtypes or seen.dtype in dtypes or any(
        seen.dtype == _NUMPY_BITS.get(dtype) for dtype in dtypes)
    if is_right_type and (seen.shape == shape or _fits(seen.shape, shape)):
        return
    sizes = ", ".join("any" if size is None else str(size) for size in shape)
    raise InvalidArgumentError(f"{name} is {seen.dtype}{list(seen.shape)}; it must be "
                               f"{' or '.join(dtypes) or 'an array'}[{sizes}]")


def weft_dtype(seen: View, dtype: Any, name: str) -> Dtype:
    """The type of an argument's elements: `dtype` if given, else its own."""
    if dtype is None:
        if seen.dtype not in _DTYPES:
            raise InvalidArgumentError(f"{name} has elements of type {seen.dtype}; allowed are "
                                       + ", ".join(_DTYPES))
        return _DTYPES[seen.dtype]
    of_elements = dtype_name(dtype)
    if of_elements not in _DTYPES:
        raise InvalidArgumentError(f"dtype is {of_elements}; allowed are {', '.join(_DTYPES)}")
    if item_bytes(of_elements) != seen.item_bytes:
        raise InvalidArgumentError(f"dtype is {of_elements}, but elements of {name} have "
                                   f"{seen.item_bytes} bytes")
    return _DTYPES[of_elements]


def num_rows(array: Any) -> int:
    """0 of what has none, which is refused later."""
    try:
        return array.shape[0]
    except (AttributeError, IndexError):
        return 0


def name_of_dtype(array: Any) -> str:
    """Of an argument's elements."""
    return _name_of_tensor_dtype(array.dtype) if is_tensor(array) else str(array.dtype)


def index_type_of(array: Any) -> Dtype:
    """Of an array that has been found to be of int32 or int64."""
    return INDEX_TYPES[_tensor_dtypes.get(array.dtype) or str(array.dtype)]


def dtype_name(dtype: Any) -> str:
    """"float32" of numpy.float32, torch.float32, Dtype.FP32, "float32"."""
    if type(dtype) is str and dtype in _DTYPES:
        return dtype
    if isinstance(dtype, Dtype):
        name = _NAMES.get(dtype, dtype.name)
    else:
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
        name = name.removeprefix("torch.")
    if name not in _DTYPES and name not in ("uint16", "uint32", "uint64", "bool"):
        raise InvalidArgumentError(f"dtype {name} is none of {', '.join(_DTYPES)}")
    return name


def dtype_value(name: str) -> Dtype:
    return _DTYPES[name]


def name_of(dtype: Dtype) -> str:
    return _NAMES[dtype]


def item_bytes(name: str) -> int:
    if name in _ITEM_BYTES:
        return _ITEM_BYTES[name]
    return 1 if name == "bool" else int(name.removeprefix("u").strip("intfloa")) // 8


def num_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    return item_bytes(dtype_name(dtype)) * math.prod(shape)


class Block(Uncopied):
    """Memory of a communicator as bytes, of which arrays are views. It keeps the communicator, and
    gives what an arena allocated back when the last of its arrays goes."""

    def __init__(self, comm: Native, address: int, shape: tuple[int, ...],
                 cuda_device: int | None, *, strides: tuple[int, ...] | None = None, free=None):
        self._comm, self._free, self._address = comm, free, address
        self._shape, self._strides = shape, strides or _dense_strides(shape, 1)
        self.cuda_device = cuda_device
        comm.add_array()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"data": (self._address, False), "shape": self._shape, "strides": self._strides,
                "typestr": "|u1", "version": 3}

    def as_tensor(self) -> Any:
        if self.cuda_device is None and "numpy" in sys.modules:
            return sys.modules["torch"].from_numpy(sys.modules["numpy"].asarray(self))
        return dlpack.tensor_of(self, self._address, self._shape, self._strides, self.cuda_device)

    def __del__(self):
        if not hasattr(self, "cuda_device"):  # __init__ did not run
            return
        if self._free is not None:
            self._free(self._address)
        self._comm.remove_array()


def as_array(block: Block, dtype: Any) -> Any:
    """A block as an array of the library that dtype is of; its last dimension shrinks."""
    if is_of_torch(dtype):
        return block.as_tensor().view(dtype)
    if block.cuda_device is not None:
        raise InvalidArgumentError("memory of GPUs comes as tensors: give a dtype of torch")
    import numpy

    return numpy.asarray(block).view(numpy_dtype_of(dtype))


def no_elements(shape: tuple[int, ...], dtype: Any, cuda_device: int | None) -> Any:
    """What weft allocates if there is nothing to allocate."""
    if is_of_torch(dtype):
        import torch

        return torch.empty(shape, dtype=dtype,
                           device="cpu" if cuda_device is None else f"cuda:{cuda_device}")
    import numpy

    return numpy.empty(shape, numpy_dtype_of(dtype))


def current_stream(cuda_device: int) -> int:
    """PyTorch's, of a device, as a number."""
    import torch

    return torch._C._cuda_getCurrentRawStream(cuda_device)


def is_of_torch(dtype: Any) -> bool:
    return type(dtype).__module__ == "torch"


def numpy_dtype_of(dtype: Any) -> Any:
    import numpy

    name = dtype_name(dtype)
    try:
        return numpy.dtype(name)
    except TypeError:
        return numpy.dtype(_NUMPY_BITS[name])


def empty(shape: tuple[int, ...], like: Any, dtype: Any = None) -> Any:
    """An array of the library and device of `like`, and its dtype if none is given: a name."""
    if is_tensor(like):
        torch = sys.modules["torch"]
        chosen = like.dtype if dtype is None else getattr(torch, dtype)
        return torch.empty(shape, dtype=chosen, device=like.device)
    if hasattr(like, "__cuda_array_interface__"):
        raise InvalidArgumentError("outputs on GPUs are allocated for tensors; give the outputs")
    import numpy

    return numpy.empty(shape, like.dtype if dtype is None else numpy_dtype_of(dtype))


def dtype_like(like: Any, name: str) -> Any:
    """The dtype `name` of the library of `like`."""
    if is_tensor(like):
        return getattr(sys.modules["torch"], name)
    return name


def as_shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    sizes = tuple(map(index, shape if isinstance(shape, Iterable) else (shape,)))
    if any(size < 0 for size in sizes):
        raise InvalidArgumentError(f"shape is {list(sizes)}; sizes must be 0 or more")
    return sizes

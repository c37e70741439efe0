"""The exceptions of the package.

Each has the status of the C API and is also one of Python's built-in exceptions, so that code which knows nothing of
this package catches what it expects, for example BufferError from ``__dlpack__``."""

from typing import Any


class Error(Exception):
    """A call was refused: nothing was taken, nothing was changed. The text names the field and the value.

    ``status`` is the number that the C API returns for this error (``DEVX_…``). By default it is one for which the
    library raises this class, so that an exception of a memory manager or of a source of batches stays what it is.
    ``driver_code`` is the code of the device driver's failed call, or 0."""

    status: int = 27  # DEVX_CALLBACK
    driver_code: int

    def __init__(self, message: str = "", status: int | None = None, driver_code: int = 0) -> None:
        super().__init__(message)
        self.status = type(self).status if status is None else status
        self.driver_code = driver_code

    @property
    def status_name(self) -> str:
        """The name of the status, for example "DEVX_INVALID_SHAPE"; "DEVX_?" for a number without a meaning."""
        from . import _native

        return _native.status_name(self.status)

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(self.__dict__)
        # OSError does not keep `errno` in `__dict__`.
        if isinstance(self, OSError) and self.errno is not None:
            state["errno"] = self.errno
        return type(self), (str(self), self.status, self.driver_code), state


class Refused(Error, BufferError):
    """The exchange is not possible as requested: other device, read-only, only with a copy, unsupported."""

    status = 17  # DEVX_UNSUPPORTED


class InvalidValue(Error, ValueError):
    """An invalid value: a shape, a stream, lengths that do not fit; or something that is closed already."""

    status = 2  # DEVX_INVALID_ARGUMENT


class InvalidType(Error, TypeError):
    """Types that do not match: schema and array, column and element type."""

    status = 13  # DEVX_MISMATCH


class OutOfRange(Error, IndexError, KeyError):
    """There is no row or column with this number, or no column with this name (elsewhere a KeyError)."""

    status = 23  # DEVX_OUT_OF_RANGE

    # KeyError's own would show the text quoted, as a key.
    __str__ = Exception.__str__


class OutOfMemory(Error, MemoryError):
    """Memory could not be allocated."""

    status = 21  # DEVX_OUT_OF_MEMORY


class Failed(Error, RuntimeError):
    """The driver or a foreign callback failed, or something is in use by another call or has no room for more."""


class SystemFailed(Error, OSError):
    """A call of the operating system failed, or another process did not do its part: the text says which and how."""

    status = 29  # DEVX_SYSTEM


class TimedOut(Refused, TimeoutError):
    """The result of a wait did not come within the given time."""

    status = 25  # DEVX_NOT_READY


# Programs and tracebacks name them as members of the package.
for _kind in (Error, Refused, InvalidValue, InvalidType, OutOfRange, OutOfMemory, Failed, SystemFailed, TimedOut):
    _kind.__module__ = "devexchange"

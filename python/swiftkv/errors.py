"""Exceptions: one class for each status of the library (include/skv/error.h)."""


class Error(Exception):
    """An error of the library. `status` is the number of its skv_status."""

    status = -1


class InputOutputError(Error, OSError):
    """A file or folder cannot be read or written."""

    status = 1


class FormatError(Error, ValueError):
    """A file or a text is malformed."""

    status = 2


class UnsupportedError(Error):
    """The model, or a combination of methods, is not supported."""

    status = 3


class ArgumentError(Error, ValueError):
    """An argument is invalid."""

    status = 4


class RangeError(Error, ValueError):
    """A value is out of range."""

    status = 5


class OutOfMemoryError(Error, MemoryError):
    """Memory is short."""

    status = 6


class FullError(Error):
    """The context or the KV memory is full."""

    status = 7


class CancelledError(Error):
    """Another thread, or a callback, has cancelled the call."""

    status = 8


CLASSES = {
    c.status: c
    for c in (
        InputOutputError,
        FormatError,
        UnsupportedError,
        ArgumentError,
        RangeError,
        OutOfMemoryError,
        FullError,
        CancelledError,
    )
}


def of_status(status: int, text: str) -> Error:
    """The exception for a status. The extension module calls it."""
    return CLASSES.get(status, Error)(text)

"""The errors and warnings of the runtime."""

from __future__ import annotations


class DeviceError(RuntimeError):
    """A device was asked for that does not exist here, or a call to its driver failed.

    Example:
        >>> from tilewright.runtime.devices import device_for
        >>> try:
        ...     device_for("cpu:7")
        ... except DeviceError as error:
        ...     print(str(error).partition(".")[0])
        there is no device 'cpu:7'
    """


class DeviceMemoryError(DeviceError, MemoryError):
    """An allocation is larger than what the device has; the message gives the bytes needed and available."""


class LaunchError(DeviceError):
    """A launch breaks a limit of its device or does not fit the kernel's parameters; the message names which."""


class KernelBuildError(DeviceError):
    """The device's compiler rejected a kernel.

    Attributes:
        log: what the compiler said.
        source: the text that it was given.
    """

    def __init__(self, kernel: str, device: str, log: str, source: str) -> None:
        numbered = "\n".join(f"{number:5d} | {line}" for number, line in enumerate(source.splitlines(), start=1))
        super().__init__(f"kernel {kernel!r} does not build on {device}:\n{log.strip()}\n--- source ---\n{numbered}")
        self.log = log
        self.source = source


class CacheWarning(UserWarning):
    """The disk cache is damaged or cannot be used; programs are rebuilt instead."""

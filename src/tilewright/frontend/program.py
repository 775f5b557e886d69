"""`tilewright.program`: a Python function of arrays, traced into a core program and compiled.

>>> import numpy as np
>>> import tilewright as tw
>>> @tw.program
... def dot(xs: tw.f64["n"], ys: tw.f64["n"]):
...     return tw.reduce("add", 0, tw.map(lambda x, y: x * y, xs, ys))
>>> dot(np.arange(3.0), np.arange(3.0)).item()
5.0
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from tilewright.frontend.annotations import Parameter, parameters_of
from tilewright.frontend.program_arguments import as_array, check_inner, element_types, given_types
from tilewright.frontend.program_compiled import CompiledProgram
from tilewright.frontend.program_options import DataSets, ProgramOptions, common_types, explanation, named_data
from tilewright.frontend.program_pickle import pickled
from tilewright.frontend.program_quick import TARGET, QuickProgram
from tilewright.frontend.program_trace import Traced, result_of, trace_function
from tilewright.frontend.program_tracing import IndexProxy, Tracer, active_tracer, as_element
from tilewright.frontend.scalar_tracing import ScalarProxy
from tilewright.frontend.torch_tensors import are_there, on_arrays
from tilewright.ir.nodes import Program
from tilewright.ir.printer import print_program
from tilewright.ir.scalars import I64, ScalarType
from tilewright.ir.sizes import Size
from tilewright.machine.forking import ForkSafeLock
from tilewright.runtime.devices import TARGET_VARIABLE, Device, device_for
from tilewright.runtime.environment import read_environment
from tilewright.runtime.thresholds import merged

if TYPE_CHECKING:
    from tilewright.machine.model import Machine
    from tilewright.passes.contractions.contraction_launches import Tiles
    from tilewright.passes.flattening.kinds import Flattening
    from tilewright.rewrite.derivation import Derivation
    from tilewright.runtime.executable import Executable
    from tilewright.tune.tiles import TilesReport
    from tilewright.tune.tuner import Timing, TuningReport


class TracedProgram:
    """A function decorated with `program`: called with arrays, it runs compiled.

    It is traced once for each combination of the element types of its generic parameters, and compiled once for each
    of those and each device.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def doubled(xs: tw.f64["n"]):
        ...     return tw.map(lambda x: 2 * x, xs)
        >>> type(doubled).__name__, doubled(np.ones(2)).tolist()
        ('TracedProgram', [2.0, 2.0])
    """

    def __init__(
        self, function: Callable[..., Any], around: Mapping[str, Any], options: ProgramOptions | None = None
    ) -> None:
        """Made by `program`."""
        self.function = function
        self.options = options or ProgramOptions()
        self._around = around
        self.parameters: tuple[Parameter, ...] = parameters_of(function, around)
        self._signature = inspect.signature(function)
        self._generic = tuple(n for n, one in enumerate(self.parameters) if one.annotation.is_generic)
        # Where the types of scalars decide what is computed, native code would have to know them all.
        self._generic_scalars = any(not self.parameters[n].annotation.shape for n in self._generic)
        kinds = [one.kind for one in self._signature.parameters.values()]
        self._all_by_name = all(one is inspect.Parameter.POSITIONAL_OR_KEYWORD for one in kinds)
        # So many arguments need not be bound to their parameters; none where some are given by keyword only.
        self._positional = -1 if any(one.keyword_only for one in self.parameters) else len(self.parameters)
        self._types = tuple(one.annotation.accepts[0] for one in self.parameters)
        self._traced: dict[tuple[ScalarType, ...], Traced] = {}
        self._quick = QuickProgram()
        self._lock = ForkSafeLock()
        source = getattr(getattr(function, "__code__", None), "co_filename", None)
        self._compiled = CompiledProgram(self._trace, self.options, source, self._lock)
        self._executables = self._compiled.calls
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any, out: Any = None, target: str | Device | None = None, **keywords: Any) -> Any:
        """Run the program.

        Args:
            *arguments: NumPy arrays of any strides (or objects with `__array__` or `__dlpack__`; of torch's tensors the
                results are tensors, without gradients) and scalars, one for each parameter; also by keyword.
            out: an array, or a tuple of arrays for several results, that the results are written to.
            target: the device: "cpu", "opencl", "cuda:1", a `Device`; default the variable TILEWRIGHT_TARGET, or the
                CPU.
            **keywords: arguments by the names of their parameters.

        Returns:
            What the function returns: an array, a NumPy scalar, or a tuple of them; with `out`, that.

        Raises:
            TypeError: for a wrong number of arguments, and dtypes that are not the parameters', naming the parameter.
            ValueError: for ranks and sizes that disagree, naming the parameter, the dimension and the sizes.
            IndexError: for an index out of range, naming program, line, array, index and extent.

        Inside of another program the call is traced along with it.
        """
        if keywords or len(arguments) != self._positional:
            arguments = self._bound(arguments, keywords)
        tracer = active_tracer()
        if tracer is not None:
            return self._inlined(tracer, arguments)
        if target is None:
            given = arguments if out is None else arguments + (out,)  # noqa: RUF005  # half the time of unpacking
            for entry in self._quick.calls.get(read_environment(TARGET), ()):
                found = entry(*given)
                if found is not None:
                    return found
        if are_there(arguments, out):
            return on_arrays(self, f"program {self.function.__name__}: argument", arguments, out, target=target)
        arrays = tuple(
            (one if type(one) is np.ndarray else as_array(self.function.__name__, parameter, one))
            if parameter.annotation.shape
            else (one[()] if type(one) is np.ndarray and not one.ndim else one)  # plans depend on values of scalars
            for parameter, one in zip(self.parameters, arguments, strict=True)
        )
        types = self._types if not self._generic else self._elements(arrays)
        asked = target if target is not None else os.environ.get(TARGET_VARIABLE, "")
        known = self._executables.get((types, asked))
        executable, several = known if known is not None else self._compiled.call(types, target)
        tiles = self._compiled.tiles.get(executable) if self._compiled.tiles else None
        if tiles is not None:
            result = tiles(arrays, out)
        else:
            result = executable(*arrays) if out is None else executable(*arrays, out=out)
        if target is None and not self._generic_scalars:
            self._quick.learn(executable, arrays, several, out)
        return (result,) if several and not isinstance(result, tuple) else result

    def trace(self, *dtypes: Any) -> Program:
        """The core program for element types.

        Args:
            *dtypes: a dtype (or an array that has it) for each parameter, or for each of the generic ones; nothing if
                none is generic.

        Raises:
            TypeError: if the dtypes do not fit the annotations, or the function cannot be traced, with file and line.
        """
        return self._trace(self._given_types(dtypes)).program

    @property
    def ir(self) -> str:
        """The core program as text (of a program without generic parameters; see `trace`)."""
        return print_program(self.trace())

    def explain(self, *dtypes: Any, target: str | Device | Machine | None = None) -> str:
        """How each part of the program is run on a device, and why not otherwise; `dtypes` as for `trace`.

        A machine (`machine.named`) need not be here.
        """
        from tilewright.machine.model import Machine  # calls from the disk do without

        if isinstance(target, Machine):
            return self.options.explained(self._trace(self._given_types(dtypes)).program, target)
        return explanation(self._executable(self._given_types(dtypes), target)[0])

    def derivation(self, *dtypes: Any, target: str | Device | Machine | None = None) -> Derivation:
        """The rewrites between the program and what is run on a device or machine; `dtypes` as for `trace`."""
        from tilewright.machine.model import Machine

        machine = target if isinstance(target, Machine) else device_for(target).machine
        return self.options.derived(self._trace(self._given_types(dtypes)).program, machine)

    # --- versions

    @property
    def has_versions(self) -> bool:
        """Whether there are versions of the program to pick from, and to tune."""
        return self.options.has_versions(self._trace(self._types).program)

    def thresholds(self, *dtypes: Any, target: str | Device | None = None) -> dict[str, float]:
        """The values that pick the program's versions on a device now; `dtypes` as for `trace`.

        They are the machine's model's, or tuned ones, or those given to `with_thresholds`.
        """
        return dict(self._executable(self._given_types(dtypes), target)[0].thresholds)

    def with_thresholds(self, values: Mapping[str, float]) -> TracedProgram:
        """The same program with other values of some thresholds: a version runs where there is at least so much
        parallelism, so 0 always picks it and infinity never. Nothing is compiled again.

        Raises:
            TypeError: for anything but a mapping of names to values.
            ValueError: (when called) for a threshold that the program does not have, and values below 0.
        """
        return self.with_options(
            dataclasses.replace(self.options, thresholds=merged(self.options.thresholds, values)), True
        )

    def with_options(self, options: ProgramOptions, same_code: bool = False) -> TracedProgram:
        """The same program with other options; `same_code` if these change nothing of what is compiled."""
        other = TracedProgram(self.function, self._around, options)
        if same_code:
            other._traced, other._lock = self._traced, self._lock
            other._compiled.share(self._compiled)
        return other

    def tune(
        self,
        datasets: DataSets,
        *,
        target: str | Device | None = None,
        cost: Literal["sum", "mean"] = "sum",
        timing: Timing | None = None,
        fresh: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> TuningReport:
        """Find the best thresholds for data sets on a device, by running them [S2, Autotuning].

        From now on the program uses them, also in later processes: they are in the user's tuning store. See
        `tune.text.write_tunings` for a file that can be shipped.

        Args:
            datasets: arguments (or functions that make them) by name, all of the same element types.
            target: the device.
            cost: "sum" of the times of all data sets, or "mean" of their times relative to the best of each.
            timing: how long each candidate is run (`tune.tuner.Timing`).
            fresh: measure everything again, and not only what was not measured before.
            progress: told what is about to be done, how many such parts are done, and how many there are.

        Returns:
            The values found, each with its interval, and the times before and after.

        Raises:
            ValueError: if the program has a single version, there is no data or no such cost, or data differ in types.
            RuntimeError: if no data set could be run.
        """
        from tilewright.tune.search import silent
        from tilewright.tune.tuner import tune

        data = {name: self._prepared(one) for name, one in named_data(datasets).items()}
        types = {name: self._elements(one) for name, one in data.items()}
        known, device = common_types(self.function.__name__, types) or self._types, device_for(target)
        executable = self._compiled.measured(known, device)
        report = tune(executable, data, cost=cost, timing=timing, fresh=fresh, progress=progress or silent)
        with self._lock:
            self._compiled.retuned([(known, device, executable.with_thresholds(report.thresholds))])
            self._quick = QuickProgram()
        return report

    def __repr__(self) -> str:
        shown = ", ".join(f"{one.name}: {one.annotation}" for one in self.parameters)
        return f"<tilewright program {self.function.__name__}({shown})>"

    def tune_tiles(self, *arguments: Any, target: str | Device | None = None, **options: Any) -> TilesReport:
        """Search tile sizes of the program's contraction for arguments of these sizes, on a device with thread blocks.

        From now on the program uses them for arguments of about these sizes (`tune.keys.shape_class`), also in later
        processes: they are in the user's tuning store. `with_tiles(report.tiles)` uses them for all sizes.

        Args:
            *arguments: as for a call.
            target: the device.
            **options: `runs`, `seconds`, `timing` and others of `tune.tiles.tune_tiles`.

        Raises:
            ValueError: if the program has not just one contraction, or the device has no thread blocks.
        """
        from tilewright.tune.tiles import tune_tiles

        given = self._prepared(arguments)
        report = tune_tiles(self._trace(self._elements(given)).program, device_for(target), given, **options)
        self._compiled.retuned()
        return report

    def with_tiles(self, tiles: Tiles) -> TracedProgram:
        """The same program with tile sizes given for the dimensions of contractions: (T, R), or Q of a contracted one.

        Raises:
            TypeError: for anything but a mapping of names to sizes.
            IllegalTiling: for sizes of another form; and (when called) for dimensions that there are not, sizes that
                break a limit of the device, and devices without thread blocks.
        """
        from tilewright.frontend.program_tiles import given_tiles

        return self.with_options(dataclasses.replace(self.options, tiles=given_tiles(tiles) or None))

    # --- other processes

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickled by its name, as functions are; with its options where those were given later.

        Raises:
            TypeError: for a program that its module does not have by that name.
        """
        return pickled(self, self.function)

    def __copy__(self) -> TracedProgram:
        return self

    def __deepcopy__(self, _: Any) -> TracedProgram:
        return self

    # --- tracing

    def _executable(self, types: tuple[ScalarType, ...], target: str | Device | None) -> tuple[Executable, bool]:
        """The program compiled, and whether the function gives a tuple."""
        return self._compiled.executable(types, device_for(target)), self._trace(types).several

    def _trace(self, types: tuple[ScalarType, ...]) -> Traced:
        with self._lock:
            if types not in self._traced:
                try:
                    self._traced[types] = trace_function(self.function, self.parameters, types)
                except RecursionError as error:
                    name = self.function.__name__
                    raise RecursionError(
                        f"program {name}: calls nest too deeply while it is traced; a program that calls itself ends "
                        f"only by what Python knows then: use tw.loop or tw.while_loop for what depends on values"
                    ) from error
            return self._traced[types]

    def _inlined(self, tracer: Tracer, arguments: Sequence[Any]) -> Any:
        """The function's result where it is called by a function that is being traced."""
        sizes: dict[str, Size] = {}
        prepared = []
        for parameter, one in zip(self.parameters, arguments, strict=True):
            annotation = parameter.annotation
            what = f"program {self.function.__name__}: parameter {parameter.name}: {annotation}"
            if annotation.shape:
                check_inner(what, annotation, one, sizes)
            elif not annotation.is_generic:
                if not isinstance(one, IndexProxy) or annotation.scalar != I64:
                    one = ScalarProxy(as_element(tracer, one, annotation.scalar, what), tracer)
                else:
                    sizes[parameter.name] = one.extent
            prepared.append(one)
        return result_of(self.function, self.parameters, prepared)

    # --- arguments

    def _prepared(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """One argument for each parameter, arrays as NumPy arrays."""
        return tuple(
            as_array(self.function.__name__, parameter, one) if parameter.annotation.shape else one
            for parameter, one in zip(self.parameters, self._bound(arguments, {}), strict=True)
        )

    def _bound(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> tuple[Any, ...]:
        rest = self.parameters[len(arguments) :]
        if rest and self._all_by_name and len(rest) == len(keywords) and all(one.name in keywords for one in rest):
            return (*arguments, *(keywords[one.name] for one in rest))  # what a signature takes microseconds to see
        try:
            bound = self._signature.bind(*arguments, **keywords)
        except TypeError as error:
            shown = ", ".join(f"{one.name}: {one.annotation}" for one in self.parameters)
            raise TypeError(f"program {self.function.__name__}({shown}): {error}") from error
        bound.apply_defaults()
        return tuple(bound.arguments[one.name] for one in self.parameters)

    def _elements(self, arguments: Sequence[Any]) -> tuple[ScalarType, ...]:
        """The element types of a call."""
        return element_types(self.function.__name__, self.parameters, arguments)

    def _given_types(self, dtypes: Sequence[Any]) -> tuple[ScalarType, ...]:
        return given_types(self.function.__name__, self.parameters, dtypes)


@overload
def program(function: Callable[..., Any]) -> TracedProgram: ...
@overload
def program(
    *,
    flattening: Flattening | None = "incremental",
    contractions: bool = True,
    tuning: str | os.PathLike[str] | None = None,
    unchecked: bool = False,
) -> Callable[[Callable[..., Any]], TracedProgram]: ...
def program(
    function: Callable[..., Any] | None = None,
    *,
    flattening: Flattening | None = "incremental",
    contractions: bool = True,
    tuning: str | os.PathLike[str] | None = None,
    unchecked: bool = False,
) -> TracedProgram | Callable[[Callable[..., Any]], TracedProgram]:
    """Compile a Python function of arrays and scalars; a decorator.

    The function is run once on proxies that record what it does. It may use `tw.map`, `tw.reduce`, `tw.scan`,
    `tw.redomap`, `tw.scanomap`, `tw.scatter`, `tw.hist`, `tw.iota`, `tw.replicate`, `tw.transpose`, `tw.rearrange`,
    `tw.reshape`, `tw.concat`, `tw.update`, `tw.cond`, `tw.loop`, `tw.while_loop`, indexing and slicing, arithmetic and
    the mathematical functions of `tw`, other programs, and any Python that does not depend on values of the arrays. It
    is run once for each combination of element types: what it reads from around it stays what it was then.

    Floats are computed as written, but for two things: a product that is added to something may be rounded only with
    the sum (a fused multiply-add), and folds and scans combine their rows in trees. Terms alike of a fold's row, joined
    by the fold's operator (those of a convolution's window), may become rows.

    Args:
        function: its parameters are annotated with their types: `xs: tw.f32["n", "m"]` is an array, `alpha: tw.f32` a
            scalar; the same name means the same size everywhere. Of `tw.float_["n"]`, `tw.integer_`, `tw.complex_`,
            and `tw.array["n"]` (any dtype) the element type is the argument's.
        flattening: what becomes of nested parallelism [S2]. "incremental": each nest is a kernel, parallel over its
            outer maps and sequential inside, where that fills the machine; there are versions with more parallelism,
            made and picked when the program runs with fewer points; see `TracedProgram.tune`. None: without such
            versions. "full": all of it is parallel. "outer": that of the outermost nests.
        contractions: map nests that are contractions are tiled, and not flattened.
        tuning: a file of tunings; else PROG.tuning beside the source file PROG.py, or the user's tuning store.
        unchecked: kernels do not check indices; one out of range reads what lies there, or ends the process.

    Returns:
        A `TracedProgram`, to be called with arrays.

    Raises:
        ValueError: for a flattening that there is not.
        TypeError: for parameters without such annotations; and when it is traced, with file and line, for what cannot
            be traced, types and sizes that do not fit.

    Example:
        >>> import numpy as np
        >>> import tilewright as tw
        >>> @tw.program
        ... def matmul(a: tw.float_["n", "k"], b: tw.float_["k", "m"]):
        ...     def dot(row, column):
        ...         return tw.reduce("add", 0, tw.map(lambda x, y: x * y, row, column))
        ...     return tw.map(lambda row: tw.map(lambda column: dot(row, column), tw.transpose(b)), a)
        >>> matmul(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    around = sys._getframe(1).f_locals
    options = ProgramOptions(flattening, contractions, tuning, unchecked=unchecked)
    if function is not None:
        return TracedProgram(function, around, options)
    return lambda decorated: TracedProgram(decorated, around, options)

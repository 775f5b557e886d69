"""An einsum as an operator of torch: with gradients, batches of `torch.func.vmap`, and a place in compiled graphs.

The gradient of an einsum is an einsum: of the result's gradient and the other operands, with the operand's own indices
as the output's. Torch is imported by what is called here, which is called for those who have imported it.
"""

from __future__ import annotations

import functools
import importlib
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.frontend.einsum import einsum
from tilewright.frontend.einsum_calls import parsed_expression
from tilewright.frontend.einsum_lists import interleaved
from tilewright.frontend.einsum_parse import BROADCAST, EinsumSpec, Labels, parse_string, resolve_extents
from tilewright.frontend.torch_tensors import DEFAULTS, are_followed, array_of, is_tensor, require_elements, tensor_of
from tilewright.ir.scalars import BF16, scalar_type_of

SCHEMA = "(str expression, Tensor[] operands, str dtype, str semiring, str target) -> Tensor"
_FOLLOWED = ("dtype", "optimize", "target")


def followed_einsum(operands: Sequence[Any], out: Any, options: Mapping[str, Any]) -> Any:
    """An einsum of tensors that torch follows.

    Raises:
        RuntimeError: for options with which it has no gradient, naming them.
        TypeError: for tensors without elements, if there are such options.
    """
    register_operator()
    first, values = (operands[0], operands[1:]) if isinstance(operands[0], str) else interleaved(operands)
    given = {name: one for name, one in options.items() if not _is_default(name, one)}
    if out is not None:
        given["out"] = out
    refused = [name for name in given if name not in _FOLLOWED and not (name == "order" and given[name] in ("C", "c"))]
    if refused:
        for number, one in enumerate(values):
            if is_tensor(one):
                require_elements(one, f"einsum: operand {number}")
        shown = ", ".join(f"{name}={given[name]!r}" if name == "semiring" else name for name in refused)
        raise RuntimeError(
            f"einsum: torch follows an operand (for a gradient, say), which goes with sums of products in new tensors, "
            f"not with {shown}; give tensor.detach(), or call under torch.no_grad()"
        )
    tensors = [one if is_tensor(one) else tensor_of(np.asarray(one)) for one in values]
    if not isinstance(first, str):
        spec, _ = resolve_extents(parsed_expression(first), [one.shape for one in tensors])
        tensors = [_without_broadcasts(one, labels) for one, labels in zip(tensors, spec.inputs, strict=True)]
        first = text_of(spec)
    return _apply(first, tensors, _dtype_name(options.get("dtype")), _target(given))


def _is_default(name: str, value: Any) -> bool:
    default = DEFAULTS[name]
    return value is default or (type(value) is type(default) and bool(value == default)) or value == []


def _target(options: Mapping[str, Any]) -> str:
    target = options.get("target")
    return "" if target is None else str(getattr(target, "name", target))


def _dtype_name(dtype: Any) -> str:
    return "" if dtype is None else scalar_type_of(dtype).name


# --- the operator -----------------------------------------------------------------------------------------------------


def _new_tensor(expression: str, operands: Sequence[Any], dtype: str, semiring: str, target: str) -> Any:
    """The einsum of tensors that torch does not follow here, in memory of its own and in C order."""
    arrays = [array_of(one, f"einsum: operand {number}") for number, one in enumerate(operands)]
    element = scalar_type_of(dtype).numpy if dtype else None  # the names "i8" and "u8" are NumPy's to `einsum`
    result = einsum(expression, *arrays, dtype=element, semiring=semiring, target=target or None, order="C")
    shared = any(np.may_share_memory(result, one) for one in arrays)
    return tensor_of(np.array(result, order="C") if shared else result)


def _shaped(expression: str, operands: Any, dtype: str, semiring: str, target: str) -> Any:
    """A tensor of the result's shape and type, for those who only ask for these."""
    spec, sizes = resolve_extents(parse_string(expression), [tuple(one.shape) for one in operands])
    extents = list(sizes.values())
    return operands[0].new_empty([extents[one] for one in spec.output], dtype=_result_type(operands, dtype))


def _result_type(operands: Sequence[Any], dtype: str) -> Any:
    """The type of the result, where NumPy's types meet as in `einsum`."""
    import torch

    met = scalar_type_of(dtype).numpy if dtype else np.result_type(*(_numpy_type(one.dtype) for one in operands))
    return getattr(torch, met.name)


def _numpy_type(dtype: Any) -> Any:
    import torch

    return BF16.numpy if dtype is torch.bfloat16 else np.dtype(str(dtype).removeprefix("torch."))


@functools.cache
def register_operator() -> None:
    """Make the operator; further calls change nothing."""
    import torch

    operator = torch.library.custom_op("tilewright::einsum", _new_tensor, mutates_args=(), schema=SCHEMA)
    operator.register_fake(_shaped)
    operator.register_autograd(_backward, setup_context=_keep)
    operator.register_vmap(_of_batch)


# --- gradients --------------------------------------------------------------------------------------------------------


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.expression, operands, ctx.dtype, ctx.semiring, ctx.target = inputs
    ctx.save_for_backward(*operands)


def _backward(ctx: Any, gradient: Any) -> Any:
    if ctx.semiring != "plus_times":
        raise RuntimeError(f"einsum {ctx.expression!r}: there is no gradient over the semiring {ctx.semiring}")
    operands = ctx.saved_tensors
    spec, _ = resolve_extents(parse_string(ctx.expression), [tuple(one.shape) for one in operands])
    found = [
        _gradient(number, spec, operands, gradient, ctx.target) if operand.requires_grad else None
        for number, operand in enumerate(operands)
    ]
    return None, found, None, None, None


def _gradient(number: int, spec: EinsumSpec, operands: Sequence[Any], gradient: Any, target: str) -> Any:
    """The gradient for one operand."""
    wanted, operand = spec.inputs[number], operands[number]
    kept = tuple(one for one in wanted if one != BROADCAST)
    terms, values = [spec.output], [gradient]
    for other, (labels, value) in enumerate(zip(spec.inputs, operands, strict=True)):
        if other != number:
            terms.append(tuple(one for one in labels if one != BROADCAST))
            values.append(_without_broadcasts(value, labels).conj().resolve_conj())
    for label in dict.fromkeys(kept):
        if not any(label in labels for labels in terms):  # the same gradient all along an index that was only summed
            terms.append((label,))
            values.append(gradient.new_ones([operand.shape[wanted.index(label)]]))
    text = text_of(EinsumSpec(tuple(terms), kept))
    result = _apply(text, values, "", target)
    if result.is_complex() and not operand.is_complex():
        result = result.real
    return result.to(operand.dtype).reshape(operand.shape)


def text_of(spec: EinsumSpec) -> str:
    """A spec as an expression, without the dimensions that are broadcast."""
    return ",".join(map(_letters, spec.inputs)) + "->" + _letters(spec.output)


def _letters(labels: Labels) -> str:
    letters = string.ascii_letters
    return "".join(
        letters[one] if one < len(letters) else chr(0x4E00 + one - len(letters)) for one in labels if one != BROADCAST
    )


def _without_broadcasts(tensor: Any, labels: Labels) -> Any:
    """A tensor without its dimensions of size 1 that are broadcast."""
    if BROADCAST not in labels:
        return tensor
    return tensor.reshape([extent for extent, one in zip(tensor.shape, labels, strict=True) if one != BROADCAST])


# --- batches, and the transforms of torch.func ------------------------------------------------------------------------


def _batched(expression: str, operands: Sequence[Any], dims: Sequence[int | None]) -> tuple[str, list[Any]]:
    """The expression and the operands of a batch: one more index, outermost in the result."""
    first = [one if dim is None else one.movedim(dim, 0) for one, dim in zip(operands, dims, strict=True)]
    shapes = [tuple(one.shape)[dim is not None :] for one, dim in zip(first, dims, strict=True)]
    spec, sizes = resolve_extents(parse_string(expression), shapes)
    batch = len(sizes)
    inputs = [labels if dim is None else (batch, *labels) for labels, dim in zip(spec.inputs, dims, strict=True)]
    values = [_without_broadcasts(one, labels) for one, labels in zip(first, inputs, strict=True)]
    return text_of(EinsumSpec(tuple(inputs), (batch, *spec.output))), values


def _of_batch(info: Any, in_dims: Any, expression: str, operands: Any, dtype: str, semiring: str, target: str) -> Any:
    import torch

    text, values = _batched(expression, operands, in_dims[1])
    return torch.ops.tilewright.einsum(text, values, dtype, semiring, target), 0


@functools.cache
def _followed() -> Any:
    import torch

    class Followed(torch.autograd.Function):  # type: ignore[misc]  # its base has no types
        """The operator as `torch.func` wants it, whose transforms go with no operator of lists of tensors."""

        @staticmethod
        def forward(expression: str, dtype: str, target: str, *operands: Any) -> Any:
            """The einsum."""
            if are_followed(operands):  # by what is around this transform
                return torch.ops.tilewright.einsum(expression, operands, dtype, "plus_times", target)
            return _new_tensor(expression, operands, dtype, "plus_times", target)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            """Keep what the gradient needs."""
            ctx.expression, ctx.dtype, ctx.target, *operands = inputs
            ctx.save_for_backward(*operands)
            ctx.save_for_forward(*operands)

        @staticmethod
        def jvp(ctx: Any, expression: None, dtype: None, target: None, *tangents: Any) -> Any:
            """The tangent: an einsum is linear in each operand."""
            found = []
            for number, one in enumerate(tangents):
                if one is not None:
                    values = [*ctx.saved_tensors[:number], one, *ctx.saved_tensors[number + 1 :]]
                    found.append(_apply(ctx.expression, values, ctx.dtype, ctx.target))
            return sum(found[1:], start=found[0])

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            """The gradient for each operand that needs one."""
            operands, needed = ctx.saved_tensors, ctx.needs_input_grad[3:]
            spec, _ = resolve_extents(parse_string(ctx.expression), [tuple(one.shape) for one in operands])
            found = [
                _gradient(n, spec, operands, gradient, ctx.target) if one else None for n, one in enumerate(needed)
            ]
            return None, None, None, *found

        @staticmethod
        def vmap(info: Any, in_dims: Any, expression: str, dtype: str, target: str, *operands: Any) -> Any:
            """The einsum of a batch."""
            text, values = _batched(expression, operands, in_dims[3:])
            return Followed.apply(text, dtype, target, *values), 0

    return Followed


def _apply(expression: str, operands: Sequence[Any], dtype: str, target: str) -> Any:
    """The operator itself for those who record operators, else what takes a third of its time."""
    import torch

    recorded = torch._C._len_torch_dispatch_stack() > 0
    if recorded or any(type(one) not in (torch.Tensor, torch.nn.Parameter) or one.is_meta for one in operands):
        return torch.ops.tilewright.einsum(expression, operands, dtype, "plus_times", target)
    return _followed().apply(expression, dtype, target, *operands)


# --- graphs -----------------------------------------------------------------------------------------------------------


def _eager_einsum(*operands: Any, **options: Any) -> Any:
    """A call between graphs: nothing of this package is looked into."""
    return einsum(*operands, **options)


def einsum_in_graph(
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    order: Any = None,
    casting: Any = "safe",
    optimize: Any = True,
    semiring: Any = "plus_times",
    epilogue: Any = None,
    epilogue_operands: Any = (),
    alpha: Any = 1,
    beta: Any = 0,
    target: Any = None,
    tiles: Any = None,
    memory_limit: Any = None,
) -> Any:
    """What torch.compile reads in place of `einsum`: the operator, or a call between graphs."""
    import torch

    plain = (
        out is None and (order is None or order == "C") and casting == "safe" and isinstance(semiring, str)
        and epilogue is None and len(epilogue_operands) == 0 and alpha == 1 and beta == 0 and tiles is None
        and memory_limit is None and (target is None or isinstance(target, str)) and optimize is True
    )  # fmt: skip
    if plain and len(operands) > 1 and isinstance(operands[0], str):
        values = list(operands[1:])
        followed = False
        for one in values:
            if not isinstance(one, torch.Tensor):
                plain = False
            elif one.requires_grad and torch.is_grad_enabled():
                followed = True
        if plain and (semiring == "plus_times" or not followed):
            name = "" if dtype is None else str(dtype).removeprefix("torch.")
            name = "bf16" if name == "bfloat16" else name
            return torch.ops.tilewright.einsum(operands[0], values, name, semiring, "" if target is None else target)
    return _eager_einsum(
        *operands, out=out, dtype=dtype, order=order, casting=casting, optimize=optimize, semiring=semiring,
        epilogue=epilogue, epilogue_operands=epilogue_operands, alpha=alpha, beta=beta, target=target, tiles=tiles,
        memory_limit=memory_limit,
    )  # fmt: skip


def register_in_graphs() -> None:
    """Have torch.compile read `einsum_in_graph` for `einsum`, and look into nothing else of this package; once."""
    import torch

    register_operator()
    rules = importlib.import_module("torch._dynamo.trace_rules")
    variables = importlib.import_module("torch._dynamo.variables")
    rules.add("tilewright")
    rules.get_torch_obj_rule_map()[einsum_in_graph] = variables.UserFunctionVariable
    torch.compiler.substitute_in_graph(einsum, skip_signature_check=True)(einsum_in_graph)

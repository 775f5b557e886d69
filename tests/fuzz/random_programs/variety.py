"""What random programs are made of: scalar types, sizes, and limits of what they cost the interpreter."""

from __future__ import annotations

from random import Random

from random_programs.scalars import SCALARS
from tilewright.ir.dataclass import dataclass
from tilewright.ir.scalars import C64, C128, F16, F32, F64, I8, I16, U8, U16, U32, U64, ScalarType

_NARROW = (I8, I16, U8, U16, U32, U64, F16)  # bf16 needs a package that may not be there
_COMPLEX = (C64, C128)
_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 33, 63, 64, 65, 67, 100)
_CONSTANTS = (2, 3, 4, 8, 12, 16)


@dataclass(frozen=True)
class Variety:
    """The stuff of random programs.

    Attributes:
        scalars: the types that they compute on; bool and i64 are among them, for conditions and indices.
        sizes: the values of size names; none of those that the program computes is larger than 3.
        most_elements: of an array that is made.
        most_work: how often one statement runs.
        most_points: of the index space of a product of arrays: more than others have, so that tiles are filled.
        further: with the constructs of all modules beside this one.
        constants: extents of parameters that are no size names.
        careless: how often, of all indices, one may be the extent itself, which is out of range.
    """

    scalars: tuple[ScalarType, ...] = SCALARS
    sizes: tuple[int, ...] = (0, 1, 2, 3, 5, 7)
    most_elements: int = 120
    most_work: int = 1500
    most_points: int = 12_000
    further: bool = False
    constants: tuple[int, ...] = (2,)
    careless: float = 0.0

    @property
    def integers(self) -> tuple[ScalarType, ...]:
        """The integer types."""
        return tuple(one for one in self.scalars if one.is_integer)


PLAIN = Variety()


def random_variety(random: Random, careless: float = 0.0, always: tuple[ScalarType, ...] = ()) -> Variety:
    """Some of the types of the language besides the common ones, small or large sizes, and all constructs.

    `always` are further types (bf16, say) that all programs compute on.
    """
    types = (*_NARROW, *_COMPLEX)
    count = random.choice((0, 1, 2, 3))
    floats = random.choice(((F32,), (F64,), (F32, F64)))
    scalars = (*SCALARS[:3], *floats, *random.sample(types, count), *always)
    largest = random.choice((3, 7, 7, 9, 17, 33, 67, 100))
    sizes = tuple(one for one in _SIZES if one <= largest)
    return Variety(
        scalars, sizes, max(120, 4 * largest), most_work=2500, further=True, constants=_CONSTANTS, careless=careless
    )

"""Our decorator makes the same mutable classes as the standard one."""

import dataclasses

import pytest

from tilewright.ir import dataclass as module


@pytest.mark.parametrize("decorator", [dataclasses.dataclass, module.dataclass])
def test_fields_of_mutable_classes_change(decorator):
    @decorator
    class Counter:
        """An example."""

        name: str
        count: int = 0
        found: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.found.append(self.name)

    one, other = Counter("a"), Counter("a", 0)
    assert one == other and repr(one).endswith("Counter(name='a', count=0, found=['a'])")
    one.count += 1
    one.found.append("b")
    assert one != other and other.found == ["a"]
    assert dataclasses.replace(one, name="c").count == 1
    with pytest.raises(TypeError):
        hash(one)
    del one.count
    assert one.count == 0  # the class's


@pytest.mark.parametrize("decorator", [dataclasses.dataclass, module.dataclass])
def test_mutable_classes_without_comparison_are_themselves(decorator):
    @decorator(eq=False)
    class Cell:
        """An example."""

        value: int

    one = Cell(1)
    assert one != Cell(1) and one in {one} and hash(one) == object.__hash__(one)

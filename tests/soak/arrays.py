"""Random arrays of PyArrow, read by Java and by Julia and handed back: the values that they read must be PyArrow's, and
what comes back must be PyArrow's array or, in Julia, one that was made of its values.

    arrays.py [--seed 1] [--arrays 1000] [--julia 20]     (scripts/soak.sh arrays)

Julia compiles code for every type, and so gets only the first arrays. The generator is that of the Python tests.
"""

import argparse
import ctypes
import decimal
import itertools
import os
import random
import struct
import sys
from bisect import bisect_right
from pathlib import Path

import jpype
import pyarrow
from pyarrow import types

import embedded

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "bindings-python" / "tests" / "host"))
import test_random_arrays as generator  # noqa: E402

NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
#: How Julia hands an array back: unchanged, copied, made of its values, made of pairs of them. Java: the first two.
GIVEN, COPIED, MADE, PAIRED = range(4)
SCHEMA_AT, ROOM = 80, 160

# Besides those of the generator, types for whose stored values Python has no type.
generator.LEAVES += [
    (pyarrow.time64("ns"), generator.whole(0, 86_399_999_999_999)),
    (pyarrow.timestamp("ns", "Europe/Berlin"), generator.whole(-(2**62), 2**62)),
    (pyarrow.duration("ns"), generator.whole(-(2**62), 2**62)),
    (pyarrow.decimal256(76, 76), lambda r: decimal.Decimal(r.randint(-(10**76) + 1, 10**76 - 1)).scaleb(-76)),
]


def of_leaf(kind, scalar):
    if types.is_boolean(kind):
        return str(scalar.as_py()).lower()
    if types.is_floating(kind):
        return "f" + struct.pack(">d", scalar.as_py()).hex()
    if types.is_decimal(kind):
        return f"d{int(scalar.as_py().scaleb(kind.scale))}e{-kind.scale}"
    if types.is_date(kind):
        return f"D{scalar.value // (1 if types.is_date32(kind) else 86_400_000)}"
    if types.is_time(kind):
        return f"t{scalar.value * NANOSECONDS[kind.unit]}"
    if types.is_timestamp(kind):
        return {"s": f"T{scalar.value * 1000}", "ms": f"T{scalar.value}"}.get(kind.unit, str(scalar.value))
    if types.is_duration(kind):
        return f"P{scalar.value * NANOSECONDS[kind.unit]}"
    if types.is_interval(kind):
        return "i" + ",".join(map(str, scalar.as_py()))
    if types.is_integer(kind):
        return str(scalar.as_py())
    value = scalar.as_py()
    return "s" + value.encode().hex() if isinstance(value, str) else "x" + value.hex()


def stored(array, k, kind):
    """The values of a buffer of a union: PyArrow's own accessors ignore the offset."""
    return pyarrow.Array.from_buffers(kind, len(array), [None, array.buffers()[k]], offset=array.offset).to_pylist()


def of_list(kind):
    return any(of(kind) for of in (types.is_list, types.is_large_list, types.is_list_view, types.is_large_list_view,
                                   types.is_fixed_size_list))  # fmt: skip


def of_array(array):
    """The text of each value, the same in all languages."""
    kind = array.type
    if types.is_null(kind):
        return ["null"] * len(array)
    if types.is_union(kind):
        children = {code: of_array(array.field(k)) for k, code in enumerate(kind.type_codes)}
        dense = kind.mode == "dense"
        places = stored(array, 2, pyarrow.int32()) if dense else range(len(array))
        return [children[code][at] for code, at in zip(stored(array, 1, pyarrow.int8()), places, strict=True)]
    if types.is_run_end_encoded(kind):
        values, ends = of_array(array.values), array.run_ends.to_pylist()
        return [values[bisect_right(ends, array.offset + row)] for row in range(len(array))]
    if types.is_dictionary(kind):
        values = of_array(array.dictionary)
        return ["null" if index is None else values[index] for index in array.indices.to_pylist()]
    if types.is_struct(kind):
        members = [of_array(array.field(k)) for k in range(kind.num_fields)]
        said = ["{" + ",".join(row) + "}" for row in zip(*members, strict=True)]
    elif types.is_map(kind):
        pairs = [[] if row.values is None else zip(*map(of_array, row.values.flatten()), strict=True) for row in array]
        said = ["(" + ",".join("=".join(pair) for pair in row) + ")" for row in pairs]
    elif of_list(kind):
        said = ["[" + ",".join([] if row.values is None else of_array(row.values)) + "]" for row in array]
    else:
        said = [of_leaf(kind, scalar) if scalar.is_valid else "null" for scalar in array]
    return [row if valid else "null" for row, valid in zip(said, array.is_valid().to_pylist(), strict=True)]


class Java:
    ways = (GIVEN, COPIED)

    def __init__(self):
        jpype.startJVM(classpath=os.environ["SOAK_CLASSPATH"].split(":"))
        self.arrays = jpype.JClass("Arrays")

    def exchange(self, *arguments):
        return str(self.arrays.exchange(*arguments))

    def settled(self):
        return self.arrays.settled()


class Julia:
    ways = (GIVEN, COPIED, MADE, PAIRED)

    def __init__(self):
        of = os.environ
        self.julia = embedded.Julia(of["SOAK_LIBJULIA"], of["SOAK_JULIA_BINDIR"], of["SOAK_JULIA_PACKAGE"], HERE / "arrays.jl")
        pointer = ctypes.c_void_p
        taken = (ctypes.c_int, pointer, pointer, pointer, pointer, ctypes.c_int)
        self._taken, self._heard, self.settled = self.julia.functions(
            "Arrays.FUNCTIONS", [taken, (ctypes.c_char_p,), (ctypes.c_int64,)]
        )

    def exchange(self, *arguments):
        status = self._taken(*arguments)
        answer = self._heard().decode()
        if status == 2:
            raise RuntimeError(f"Julia: {answer}")
        return None if status else answer


def came_back(address, array, said, how):
    """Checks that a language hands back what it was given."""
    back = pyarrow.Array._import_from_c(address, address + SCHEMA_AT)
    try:
        back.validate(full=True)
    except pyarrow.ArrowInvalid as refused:
        # PyArrow assumes that the views of an array without rows are a buffer of no bytes, and finds it too small for
        # an offset.
        if "View buffer size (bytes): 0 isn't" not in str(refused):
            raise
    if how <= COPIED:
        return back.type == array.type and of_array(back) == said
    made = of_array(back.field(0))
    return made == ([f"[{row},{row}]" for row in said] if how == PAIRED else said)


def exchange(language, array, said, how):
    room, back = (ctypes.create_string_buffer(ROOM) for _ in range(2))
    at, back_at = ctypes.addressof(room), ctypes.addressof(back)
    array._export_to_c(at, at + SCHEMA_AT)
    answer = language.exchange(at, at + SCHEMA_AT, back_at, back_at + SCHEMA_AT, how)
    if answer is not None:
        assert answer.split("\n") == (said or [""]), answer
        assert came_back(back_at, array, said, how), "what came back is not what was given"
    return answer is not None


def arrays(seed):
    """An endless sequence of arrays, each with its number."""
    for number in itertools.count():
        r = random.Random(f"{seed}/{number}")
        yield number, generator.sliced(generator.maker(r, r.choice([1, 2, 3])), r, r.choice([0, 1, 4, 9]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arrays", type=int, default=1000)
    parser.add_argument("--julia", type=int, default=20)
    options = parser.parse_args()
    decimal.getcontext().prec = 80
    # Julia first, as in soak.py.
    julia, java = Julia(), Java()
    exchanged = {julia: 0, java: 0}
    for number, array in itertools.islice(arrays(options.seed), options.arrays):
        said = of_array(array)
        for language in [java] if number >= options.julia else [julia, java]:
            for how in language.ways:
                try:
                    taken = exchange(language, array, said, how)
                    # If Julia makes an array of values, it must also make one of pairs of them.
                    assert how != PAIRED or taken == made, f"{'pairs' if made else 'values'} of it are refused"
                    made = taken
                    exchanged[language] += taken
                except Exception:
                    print(f"array {number} of seed {options.seed}, {array.type}, way {how}: {said}", file=sys.stderr)
                    raise
    del array
    outstanding = java.settled(), julia.settled()
    print(f"seed {options.seed}: {exchanged[java]} exchanges with Java, {exchanged[julia]} with Julia")
    assert outstanding == (0, 0), f"outstanding {outstanding}"
    julia.julia.close()


main()

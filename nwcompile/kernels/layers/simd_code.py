"""LLVM's code for what `simd` does with vectors: functions of a builder, which give values."""

from llvmlite import ir
from numba.core import cgutils

PIECE = 8  # Short rows are written by pieces of so many numbers.
BYTES = {"float": 4, "double": 8, "i8": 1, "i32": 4}
SUFFIX = {"float": "f32", "double": "f64", "i8": "i8", "i32": "i32"}
WORD = ir.IntType(32)
LINE_BYTES = 64  # This is the size of a line of the caches.
READ = 0  # LLVM's number for what is asked for early to be read.
SECOND_CACHE = 2  # LLVM's number for the cache that gets it: the first is too small for what is used so much later.
DATA = 1  # LLVM's number for what is no code.


def splat(builder, number, lanes: int):
    """The same number in every lane."""
    empty = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    first = ir.Constant(ir.VectorType(WORD, lanes), [0] * lanes)
    return builder.shuffle_vector(builder.insert_element(empty, number, WORD(0)), empty, first)


def numbers(builder, truth, element):
    """1 where true, else 0, of that type."""
    vector = ir.VectorType(element, truth.type.count)
    return builder.zext(truth, vector) if isinstance(element, ir.IntType) else builder.uitofp(truth, vector)


def unary(builder, name: str, vector):
    """LLVM's function of that name on every lane."""
    kind = ir.FunctionType(vector.type, [vector.type])
    name = f"llvm.{name}.v{vector.type.count}{SUFFIX[str(vector.type.element)]}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


def total(builder, vector):
    """The sum of all lanes, whose number is a power of two."""
    while vector.type.count > 1:
        half = vector.type.count // 2
        low, high = (
            builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(WORD, half), [*range(at, at + half)]))
            for at in (0, half)
        )
        vector = builder.fadd(low, high)
    return builder.extract_element(vector, WORD(0))


def place_of(context, builder, array_type, array, index, vector):
    """A pointer to `vector` at an index of a flat array."""
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def load(builder, place, left):
    """The vector at `place`, 0 from lane `left` on."""
    vector = place.type.pointee
    size = BYTES[str(vector.element)]
    with builder.if_else(is_whole(builder, left, vector.count), likely=True) as (whole, part):
        with whole:
            every, from_whole = builder.load(place, align=size), builder.block
        with part:
            arguments = [place, WORD(size), inside(builder, left, vector.count), vector(None)]
            some, from_part = masked(builder, "load", vector, arguments), builder.block
    return joined(builder, (every, from_whole), (some, from_part))


def store(builder, value, place, left):
    """Write the lanes below `left`."""
    size, lanes = BYTES[str(value.type.element)], value.type.count
    with builder.if_else(is_whole(builder, left, lanes), likely=True) as (whole, part):
        with whole:
            builder.store(value, place, align=size)
        with part:
            masked(builder, "store", ir.VoidType(), [value, place, WORD(size), inside(builder, left, lanes)])


def store_large(builder, value, place, left, past):
    """As `store`; where `past`, the whole vector past the caches, to where a line of theirs begins."""
    with builder.if_else(past) as (large, small):
        with large:
            store_past(builder, value, place, LINE_BYTES)
        with small:
            store(builder, value, place, left)


def store_piece(builder, value, place, first: int, past):
    """Write lanes `first` to `first + PIECE` to where they belong in a vector at `place`."""
    lanes = ir.Constant(ir.VectorType(WORD, PIECE), list(range(first, first + PIECE)))
    piece, size = builder.shuffle_vector(value, value, lanes), BYTES[str(value.type.element)]
    to = builder.gep(builder.bitcast(place, piece.type.as_pointer()), [WORD(first // PIECE)])
    with builder.if_else(past) as (large, small):
        with large:
            store_past(builder, piece, to, PIECE * size)
        with small:
            builder.store(piece, to, align=size)


def store_past(builder, value, place, align: int):
    """Write past the caches."""
    stored = builder.store(value, place, align=align)
    stored.set_metadata("nontemporal", builder.module.add_metadata([WORD(1)]))


def ask_for(builder, place):
    """Let the caches load a vector, while something else is computed; an address behind the end does no harm."""
    word, byte = WORD, ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    first, vector = builder.bitcast(place, byte), place.type.pointee
    for offset in range(0, vector.count * BYTES[str(vector.element)], LINE_BYTES):
        builder.call(prefetch, [builder.gep(first, [word(offset)]), word(READ), word(SECOND_CACHE), word(DATA)])


def is_whole(builder, left, lanes: int):
    """Whether no lane is beyond `left`."""
    return builder.icmp_signed(">=", left, left.type(lanes))


def inside(builder, left, lanes: int):
    """Which lanes are below `left`."""
    every = ir.Constant(ir.VectorType(WORD, lanes), list(range(lanes)))
    return builder.icmp_signed("<", every, splat(builder, builder.trunc(left, WORD), lanes))


def masked(builder, name: str, result, arguments):
    """LLVM's load or store of some lanes."""
    vector = next(a.type for a in arguments if isinstance(a.type, ir.VectorType) and a.type.element != ir.IntType(1))
    kind = ir.FunctionType(result, [a.type for a in arguments])
    name = f"llvm.masked.{name}.v{vector.count}{SUFFIX[str(vector.element)]}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def joined(builder, *cases):
    """The value of whichever block control came from."""
    phi = builder.phi(cases[0][0].type)
    for value, block in cases:
        phi.add_incoming(value, block)
    return phi

"""LLVM code of the vector operations of `simd`: functions of a builder that return values."""

from llvmlite import ir
from numba.core import cgutils

PIECE = 8  # Short rows are stored in pieces of this many numbers.
BYTES = {"float": 4, "double": 8, "i8": 1, "i32": 4}
SUFFIX = {"float": "f32", "double": "f64", "i8": "i8", "i32": "i32"}
WORD = ir.IntType(32)
LINE_BYTES = 64  # Size of a cache line.
READ = 0  # `llvm.prefetch`: prefetch for a read.
SECOND_CACHE = 2  # `llvm.prefetch`: into the second-level cache; the first is too small for such early data.
DATA = 1  # `llvm.prefetch`: data, not instructions.


def splat(builder, number, lanes: int):
    """Fill every lane with the same number."""
    empty = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    first = ir.Constant(ir.VectorType(WORD, lanes), [0] * lanes)
    return builder.shuffle_vector(builder.insert_element(empty, number, WORD(0)), empty, first)


def numbers(builder, truth, element):
    """1 where true, else 0, in the given element type."""
    vector = ir.VectorType(element, truth.type.count)
    return builder.zext(truth, vector) if isinstance(element, ir.IntType) else builder.uitofp(truth, vector)


def unary(builder, name: str, vector):
    """Call LLVM's function `name` on every lane."""
    kind = ir.FunctionType(vector.type, [vector.type])
    name = f"llvm.{name}.v{vector.type.count}{SUFFIX[str(vector.type.element)]}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


def total(builder, vector):
    """The sum of all lanes; their number is a power of two."""
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
    """Load the vector at `place`; 0 from lane `left` on."""
    vector = place.type.pointee
    size = BYTES[str(vector.element)]
    with builder.if_else(is_whole(builder, left, vector.count), likely=True) as (whole, part):
        with whole:
            every, from_whole = builder.load(place, align=size), builder.block
        with part:
            arguments = [place, WORD(size), lanes_below(builder, left, vector.count), vector(None)]
            some, from_part = call_masked(builder, "load", vector, arguments), builder.block
    return join_branches(builder, (every, from_whole), (some, from_part))


def store(builder, value, place, left):
    """Store the lanes below `left`."""
    size, lanes = BYTES[str(value.type.element)], value.type.count
    with builder.if_else(is_whole(builder, left, lanes), likely=True) as (whole, part):
        with whole:
            builder.store(value, place, align=size)
        with part:
            call_masked(builder, "store", ir.VoidType(), [value, place, WORD(size), lanes_below(builder, left, lanes)])


def store_large(builder, value, place, left, past):
    """`store`; if `past`, store the whole vector, aligned to a cache line, past the caches."""
    with builder.if_else(past) as (large, small):
        with large:
            store_past(builder, value, place, LINE_BYTES)
        with small:
            store(builder, value, place, left)


def store_piece(builder, value, place, first: int, past):
    """Store lanes `first` to `first + PIECE` at their places in a vector at `place`."""
    lanes = ir.Constant(ir.VectorType(WORD, PIECE), list(range(first, first + PIECE)))
    piece, size = builder.shuffle_vector(value, value, lanes), BYTES[str(value.type.element)]
    to = builder.gep(builder.bitcast(place, piece.type.as_pointer()), [WORD(first // PIECE)])
    with builder.if_else(past) as (large, small):
        with large:
            store_past(builder, piece, to, PIECE * size)
        with small:
            builder.store(piece, to, align=size)


def store_past(builder, value, place, align: int):
    """Store past the caches (non-temporal)."""
    stored = builder.store(value, place, align=align)
    stored.set_metadata("nontemporal", builder.module.add_metadata([WORD(1)]))


def ask_for(builder, place):
    """Prefetch a vector in the background; an address beyond the end is harmless."""
    word, byte = WORD, ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    first, vector = builder.bitcast(place, byte), place.type.pointee
    for offset in range(0, vector.count * BYTES[str(vector.element)], LINE_BYTES):
        builder.call(prefetch, [builder.gep(first, [word(offset)]), word(READ), word(SECOND_CACHE), word(DATA)])


def is_whole(builder, left, lanes: int):
    """Whether all lanes are below `left`."""
    return builder.icmp_signed(">=", left, left.type(lanes))


def lanes_below(builder, left, lanes: int):
    """Mask of the lanes below `left`."""
    every = ir.Constant(ir.VectorType(WORD, lanes), list(range(lanes)))
    return builder.icmp_signed("<", every, splat(builder, builder.trunc(left, WORD), lanes))


def call_masked(builder, name: str, result, arguments):
    """Call LLVM's masked load or store."""
    vector = next(a.type for a in arguments if isinstance(a.type, ir.VectorType) and a.type.element != ir.IntType(1))
    kind = ir.FunctionType(result, [a.type for a in arguments])
    name = f"llvm.masked.{name}.v{vector.count}{SUFFIX[str(vector.element)]}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def join_branches(builder, *cases):
    """Merge the values of several blocks (phi node)."""
    phi = builder.phi(cases[0][0].type)
    for value, block in cases:
        phi.add_incoming(value, block)
    return phi

"""Vectors of 32 numbers for Numba kernels whose rows are too short, or too many, for the compiler to vectorize.

32 numbers fill several registers of any processor, so that their dependency chains overlap. A row of n numbers is
processed in steps of `LANES`; `left` is the number of remaining numbers: beyond them, `load` gives 0 and `store` writes
nothing. Kernels of short rows use fewer lanes, one of `WIDTHS`: `filled_lanes` makes a first vector of that width, and
other vectors are made like it. Arithmetic is rounded operation by operation in each lane, as scalar code is, without
fused multiply-add.
"""

import operator

from llvmlite import ir
from numba import types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

from nwcompile.kernels.layers import simd_code as code
from nwcompile.kernels.layers.simd_code import PIECE, WORD

LANES = 32  # Numbers in a vector: one word of packed spikes.
WIDTHS = (8, 16, LANES)
WORD_BITS = 32  # Packed spikes: a word holds 32 steps, one per bit.


class Vector(types.Type):
    """A vector type of floats, truth values or 32-bit words."""

    def __init__(self, dtype, lanes: int = LANES):
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Vector({dtype}, {lanes})")

    def with_dtype(self, dtype) -> "Vector":
        """The vector type with as many lanes of another number type."""
        return Vector(dtype, self.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, fe_type):
        element = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
        element |= {types.boolean: ir.IntType(1), types.int32: WORD}
        super().__init__(manager, fe_type, ir.VectorType(element[fe_type.dtype], fe_type.lanes))


FLOATS = [Vector(dtype, lanes) for dtype in (types.float32, types.float64) for lanes in WIDTHS]


def width_of(n: int) -> int:
    """The smallest of `WIDTHS` that holds `n` numbers."""
    return next(lanes for lanes in WIDTHS if lanes >= n)


def _register_operator(function, result, emit) -> None:
    """Register an operator between two float vectors in kernels; `result`: number type of the result, if different."""
    cases = [signature(kind.with_dtype(result or kind.dtype), kind, kind) for kind in FLOATS]
    infer_global(function)(type(f"_{function.__name__}", (ConcreteTemplate,), {"cases": cases}))
    for kind in FLOATS:
        lower_builtin(function, kind, kind)(lambda context, builder, sig, args: emit(builder, *args))


_register_operator(operator.add, None, lambda builder, x, y: builder.fadd(x, y))
_register_operator(operator.sub, None, lambda builder, x, y: builder.fsub(x, y))
_register_operator(operator.mul, None, lambda builder, x, y: builder.fmul(x, y))
_register_operator(operator.truediv, None, lambda builder, x, y: builder.fdiv(x, y))
_register_operator(operator.ge, types.boolean, lambda builder, x, y: builder.fcmp_ordered(">=", x, y))
_register_operator(operator.gt, types.boolean, lambda builder, x, y: builder.fcmp_ordered(">", x, y))
_register_operator(operator.le, types.boolean, lambda builder, x, y: builder.fcmp_ordered("<=", x, y))
_register_operator(operator.lt, types.boolean, lambda builder, x, y: builder.fcmp_ordered("<", x, y))
_register_operator(operator.eq, types.boolean, lambda builder, x, y: builder.fcmp_ordered("==", x, y))
_register_operator(operator.ne, types.boolean, lambda builder, x, y: builder.fcmp_unordered("!=", x, y))


@intrinsic
def filled(typingctx, number):
    """Fill every lane with the same number."""

    def codegen(context, builder, sig, args):
        return code.splat(builder, args[0], LANES)

    return Vector(number)(number), codegen


@intrinsic
def filled_lanes(typingctx, number, lanes):
    """Fill `lanes` lanes, a constant, with the same number."""
    if not isinstance(lanes, types.IntegerLiteral):
        return None

    def codegen(context, builder, sig, args):
        return code.splat(builder, args[0], sig.return_type.lanes)

    return Vector(number, lanes.literal_value)(number, lanes), codegen


@intrinsic
def filled_like(typingctx, like, number):
    """Fill as many lanes as `like` has with the same number."""

    def codegen(context, builder, sig, args):
        return code.splat(builder, args[1], sig.return_type.lanes)

    return like.with_dtype(number)(like, number), codegen


@intrinsic
def where(typingctx, truth, yes, no):
    """Select lanes of `yes` where true, else of `no`."""

    def codegen(context, builder, sig, args):
        return builder.select(*args)

    return yes(truth, yes, no), codegen


@intrinsic
def both(typingctx, x, y):
    """Logical and of truth values."""

    def codegen(context, builder, sig, args):
        return builder.and_(*args)

    return x(x, y), codegen


@intrinsic
def either(typingctx, x, y):
    """Logical or of truth values."""

    def codegen(context, builder, sig, args):
        return builder.or_(*args)

    return x(x, y), codegen


@intrinsic
def negated(typingctx, truth):
    """Logical not of truth values."""

    def codegen(context, builder, sig, args):
        return builder.not_(args[0])

    return truth(truth), codegen


@intrinsic
def as_numbers(typingctx, like, truth):
    """1 where true, else 0, in the type of `like`."""

    def codegen(context, builder, sig, args):
        return code.numbers(builder, args[1], args[0].type.element)

    return like(like, truth), codegen


def _wrap_llvm_function(name: str, what: str):
    """Wrap LLVM's function `name`, applied to every lane; `what` becomes the docstring."""

    def function(typingctx, x):
        def codegen(context, builder, sig, args):
            return code.unary(builder, name, args[0])

        return x(x), codegen

    function.__name__ = function.__qualname__ = name
    function.__doc__ = what
    return intrinsic(function)


magnitude = _wrap_llvm_function("fabs", "|x|.")
floor = _wrap_llvm_function("floor", "The largest integer that is not above x.")
trunc = _wrap_llvm_function("trunc", "x rounded towards zero.")
root = _wrap_llvm_function("sqrt", "The square root, rounded to nearest.")


@intrinsic
def exponential(typingctx, x):
    """e**x in every lane, with the C library's result."""

    def codegen(context, builder, sig, args):
        return code.unary(builder, "exp", args[0])

    return x(x), codegen


@intrinsic
def bits_of(typingctx, truth):
    """Truth values as bits, lane 0 in the lowest."""

    def codegen(context, builder, sig, args):
        return builder.zext(builder.bitcast(args[0], ir.IntType(truth.lanes)), ir.IntType(64))

    return types.int64(truth), codegen


@intrinsic
def total(typingctx, x):
    """The sum of all lanes, by repeated halving."""

    def codegen(context, builder, sig, args):
        return code.total(builder, args[0])

    return x.dtype(x), codegen


@intrinsic
def lowest(typingctx, bits):
    """The number of the lowest set bit."""

    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), codegen


@intrinsic
def load(typingctx, array, index, left):
    """Load numbers of a flat float array from `index` on; 0 from lane `left` on."""

    def codegen(context, builder, sig, args):
        array, index, left = args
        vector = context.get_value_type(sig.return_type)
        return code.load(builder, code.place_of(context, builder, sig.args[0], array, index, vector), left)

    return Vector(array.dtype)(array, types.intp, types.intp), codegen


@intrinsic
def load_like(typingctx, like, array, index, left):
    """`load` with as many lanes as `like` has."""

    def codegen(context, builder, sig, args):
        _, array, index, left = args
        vector = context.get_value_type(sig.return_type)
        return code.load(builder, code.place_of(context, builder, sig.args[1], array, index, vector), left)

    return like.with_dtype(array.dtype)(like, array, types.intp, types.intp), codegen


@intrinsic
def ask_for(typingctx, like, array, index):
    """Prefetch as many numbers from `index` on as `like` has lanes; they may be beyond the array's end.

    Hardware prefetchers detect sequential reads, but only within a page of memory.
    """

    def codegen(context, builder, sig, args):
        _, array, index = args
        vector = context.get_value_type(sig.args[0])
        code.ask_for(builder, code.place_of(context, builder, sig.args[1], array, index, vector))
        return context.get_dummy_value()

    return types.void(like, array, types.intp), codegen


@intrinsic
def load_every(typingctx, array, index, left, stride):
    """`load` if `stride` is 1; the number at `index` in every lane if `stride` is 0."""

    def codegen(context, builder, sig, args):
        array, index, left, stride = args
        vector = context.get_value_type(sig.return_type)
        place = code.place_of(context, builder, sig.args[0], array, index, vector)
        with builder.if_else(builder.icmp_signed("==", stride, stride.type(0))) as (one, many):
            with one:
                number = builder.load(builder.bitcast(place, vector.element.as_pointer()))
                same, from_one = code.splat(builder, number, LANES), builder.block
            with many:
                row = code.load(builder, place, left)
                from_many = builder.block
        return code.join_branches(builder, (same, from_one), (row, from_many))

    return Vector(array.dtype)(array, types.intp, types.intp, types.intp), codegen


@intrinsic
def store(typingctx, array, index, left, value):
    """Store the lanes below `left` to a flat array of the vector's type from `index` on."""

    def codegen(context, builder, sig, args):
        array, index, left, value = args
        place = code.place_of(context, builder, sig.args[0], array, index, value.type)
        code.store(builder, value, place, left)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, value), codegen


@intrinsic
def store_large(typingctx, array, index, left, value, past):
    """`store`; if `past`, store the whole vector, aligned to a cache line, past the caches.

    A non-temporal store saves reading the lines first. It suits results that are too large to stay in the caches.
    """

    def codegen(context, builder, sig, args):
        array, index, left, value, past = args
        place = code.place_of(context, builder, sig.args[0], array, index, value.type)
        code.store_large(builder, value, place, left, past)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, value, types.boolean), codegen


@intrinsic
def fence(typingctx):
    """Make all earlier stores visible to every thread."""

    def codegen(context, builder, sig, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def add_to(typingctx, array, index, left, value):
    """Add the lanes below `left` to a flat float64 array from `index` on."""

    def codegen(context, builder, sig, args):
        array, index, left, value = args
        wide = ir.VectorType(ir.DoubleType(), LANES)
        place = code.place_of(context, builder, sig.args[0], array, index, wide)
        value = value if value.type == wide else builder.fpext(value, wide)
        code.store(builder, builder.fadd(code.load(builder, place, left), value), place, left)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, value), codegen


@intrinsic
def store_spikes(typingctx, spikes, index, left, fired, past):
    """Store truth values to a flat array: 1 or 0 as floats (see `store_large`) or uint8; nothing to int32.

    In int32, spikes are bits, which `set_bit` collects and `store_words` writes.
    """

    def codegen(context, builder, sig, args):
        array, index, left, fired, past = args
        dtype = sig.args[0].dtype
        if dtype == types.int32:
            return context.get_dummy_value()
        numbers = code.numbers(builder, fired, context.get_value_type(dtype))
        place = code.place_of(context, builder, sig.args[0], array, index, numbers.type)
        if isinstance(dtype, types.Float):
            code.store_large(builder, numbers, place, left, past)
        else:
            code.store(builder, numbers, place, left)
        return context.get_dummy_value()

    return types.void(spikes, types.intp, types.intp, fired, types.boolean), codegen


@intrinsic
def store_row(typingctx, array, index, n_numbers, left, value, past):
    """Store a row of `n_numbers` numbers, or truth values as `store_spikes` does, from one vector.

    Rows of whole pieces are stored piece by piece; if `past`, past the caches, with pieces aligned to their size. For
    other rows the whole vector is stored, up to `left`, because a masked store to the end of the row is slower. The
    excess lanes fall on rows that are written later.
    """

    def codegen(context, builder, sig, args):
        array, index, n_numbers, left, value, past = args
        dtype = sig.args[0].dtype
        if dtype == types.int32:
            return context.get_dummy_value()
        if sig.args[4].dtype == types.boolean:
            value = code.numbers(builder, value, context.get_value_type(dtype))
        place = code.place_of(context, builder, sig.args[0], array, index, value.type)
        rest = builder.and_(n_numbers, n_numbers.type(PIECE - 1))
        with builder.if_else(builder.icmp_signed("==", rest, n_numbers.type(0))) as (in_pieces, whole):
            with in_pieces:
                for first in range(0, value.type.count, PIECE):
                    with builder.if_then(builder.icmp_signed("<", n_numbers.type(first), n_numbers)):
                        code.store_piece(builder, value, place, first, past)
            with whole:
                code.store(builder, value, place, left)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, types.intp, value, types.boolean), codegen


@intrinsic
def no_bits(typingctx, like):
    """Words without bits, as many as `like` has lanes."""

    def codegen(context, builder, sig, args):
        return context.get_value_type(sig.return_type)(None)

    return like.with_dtype(types.int32)(like), codegen


@intrinsic
def set_bit(typingctx, words, fired, step):
    """Set bit `step % 32` of the words where `fired`."""

    def codegen(context, builder, sig, args):
        words, fired, step = args
        bit = builder.and_(builder.trunc(step, WORD), WORD(WORD_BITS - 1))
        every = code.splat(builder, builder.shl(WORD(1), bit), words.type.count)
        return builder.select(fired, builder.or_(words, every), words)

    return words(words, fired, types.intp), codegen


@intrinsic
def store_words(typingctx, spikes, index, left, words, step):
    """Store words with the bits of some steps to a flat int32 array, merged with earlier steps; nothing to other types.

    `step`: the first of those steps. If it begins a word, the old content is not read.
    """

    def codegen(context, builder, sig, args):
        array, index, left, words, step = args
        if sig.args[0].dtype != types.int32:
            return context.get_dummy_value()
        place = code.place_of(context, builder, sig.args[0], array, index, words.type)
        bit = builder.and_(builder.trunc(step, WORD), WORD(WORD_BITS - 1))
        with builder.if_else(builder.icmp_signed("==", bit, WORD(0))) as (first, later):
            with first:
                from_first = builder.block
            with later:
                both = builder.or_(code.load(builder, place, left), words)
                from_later = builder.block
        code.store(builder, code.join_branches(builder, (words, from_first), (both, from_later)), place, left)
        return context.get_dummy_value()

    return types.void(spikes, types.intp, types.intp, words, types.intp), codegen

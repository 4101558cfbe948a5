"""Vectors of 32 numbers for Numba kernels, where rows are too short for the compiler to vectorize, or too many.

32 numbers are several registers of any processor, so that their chains of operations overlap. A row of n numbers is
gone through in steps of `LANES`; `left` says how many are left: `load` gives 0 beyond them, `store` writes nothing
there. Kernels whose rows are all shorter take fewer lanes, one of `WIDTHS`: `filled_lanes` makes a first vector of so
many, others are made like it. Arithmetic is rounded operation by operation, lane by lane as scalar code is (never a
fused multiply-add).
"""

import operator

from llvmlite import ir
from numba import types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

from nwcompile.kernels.layers import simd_code as code
from nwcompile.kernels.layers.simd_code import PIECE, WORD

LANES = 32  # A vector holds so many numbers: one word of packed spikes.
WIDTHS = (8, 16, LANES)
WORD_BITS = 32  # Packed spikes hold the steps of 32 bits in a word.


class Vector(types.Type):
    """Numbers of a float type, truth values, or words of 32 bits, one in each lane."""

    def __init__(self, dtype, lanes: int = LANES):
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Vector({dtype}, {lanes})")

    def of(self, dtype) -> "Vector":
        """As many of another type."""
        return Vector(dtype, self.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, fe_type):
        element = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
        element |= {types.boolean: ir.IntType(1), types.int32: WORD}
        super().__init__(manager, fe_type, ir.VectorType(element[fe_type.dtype], fe_type.lanes))


FLOATS = [Vector(dtype, lanes) for dtype in (types.float32, types.float64) for lanes in WIDTHS]


def width_of(n: int) -> int:
    """The least of `WIDTHS` that holds `n` numbers."""
    return next(lanes for lanes in WIDTHS if lanes >= n)


def _operator(function, result, emit) -> None:
    """Let kernels write `function` between two vectors of floats; `result`: what numbers it gives, if others."""
    cases = [signature(kind.of(result or kind.dtype), kind, kind) for kind in FLOATS]
    infer_global(function)(type(f"_{function.__name__}", (ConcreteTemplate,), {"cases": cases}))
    for kind in FLOATS:
        lower_builtin(function, kind, kind)(lambda context, builder, sig, args: emit(builder, *args))


_operator(operator.add, None, lambda builder, x, y: builder.fadd(x, y))
_operator(operator.sub, None, lambda builder, x, y: builder.fsub(x, y))
_operator(operator.mul, None, lambda builder, x, y: builder.fmul(x, y))
_operator(operator.truediv, None, lambda builder, x, y: builder.fdiv(x, y))
_operator(operator.ge, types.boolean, lambda builder, x, y: builder.fcmp_ordered(">=", x, y))
_operator(operator.gt, types.boolean, lambda builder, x, y: builder.fcmp_ordered(">", x, y))
_operator(operator.le, types.boolean, lambda builder, x, y: builder.fcmp_ordered("<=", x, y))
_operator(operator.lt, types.boolean, lambda builder, x, y: builder.fcmp_ordered("<", x, y))
_operator(operator.eq, types.boolean, lambda builder, x, y: builder.fcmp_ordered("==", x, y))
_operator(operator.ne, types.boolean, lambda builder, x, y: builder.fcmp_unordered("!=", x, y))


@intrinsic
def filled(typingctx, number):
    """The same number in every lane."""

    def codegen(context, builder, sig, args):
        return code.splat(builder, args[0], LANES)

    return Vector(number)(number), codegen


@intrinsic
def filled_lanes(typingctx, number, lanes):
    """The same number in each of `lanes` lanes, which is a constant."""
    if not isinstance(lanes, types.IntegerLiteral):
        return None

    def codegen(context, builder, sig, args):
        return code.splat(builder, args[0], sig.return_type.lanes)

    return Vector(number, lanes.literal_value)(number, lanes), codegen


@intrinsic
def filled_like(typingctx, like, number):
    """The same number in as many lanes as `like` has."""

    def codegen(context, builder, sig, args):
        return code.splat(builder, args[1], sig.return_type.lanes)

    return like.of(number)(like, number), codegen


@intrinsic
def where(typingctx, truth, yes, no):
    """Lanes of `yes` where true, else of `no`."""

    def codegen(context, builder, sig, args):
        return builder.select(*args)

    return yes(truth, yes, no), codegen


@intrinsic
def both(typingctx, x, y):
    """Truth values that are both true."""

    def codegen(context, builder, sig, args):
        return builder.and_(*args)

    return x(x, y), codegen


@intrinsic
def either(typingctx, x, y):
    """Truth values of which one is true."""

    def codegen(context, builder, sig, args):
        return builder.or_(*args)

    return x(x, y), codegen


@intrinsic
def negated(typingctx, truth):
    """Truth values turned round."""

    def codegen(context, builder, sig, args):
        return builder.not_(args[0])

    return truth(truth), codegen


@intrinsic
def as_numbers(typingctx, like, truth):
    """1 where true, else 0, of the type of `like`."""

    def codegen(context, builder, sig, args):
        return code.numbers(builder, args[1], args[0].type.element)

    return like(like, truth), codegen


def _of_llvm(name: str, what: str):
    """LLVM's function of that name on every lane; `what` it gives."""

    def function(typingctx, x):
        def codegen(context, builder, sig, args):
            return code.unary(builder, name, args[0])

        return x(x), codegen

    function.__name__ = function.__qualname__ = name
    function.__doc__ = what
    return intrinsic(function)


magnitude = _of_llvm("fabs", "|x|.")
floor = _of_llvm("floor", "The largest whole number that is not above x.")
trunc = _of_llvm("trunc", "x without what is behind the point.")
root = _of_llvm("sqrt", "The square root, rounded to the nearest number.")


@intrinsic
def exponential(typingctx, x):
    """e**x, lane by lane as the C library has it."""

    def codegen(context, builder, sig, args):
        return code.unary(builder, "exp", args[0])

    return x(x), codegen


@intrinsic
def bits_of(typingctx, truth):
    """Truth values as bits, lane 0 the lowest."""

    def codegen(context, builder, sig, args):
        return builder.zext(builder.bitcast(args[0], ir.IntType(truth.lanes)), ir.IntType(64))

    return types.int64(truth), codegen


@intrinsic
def total(typingctx, x):
    """The sum of all lanes: of halves, of quarters, and so on."""

    def codegen(context, builder, sig, args):
        return code.total(builder, args[0])

    return x.dtype(x), codegen


@intrinsic
def lowest(typingctx, bits):
    """The number of the lowest bit that is set."""

    def codegen(context, builder, sig, args):
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.int64), codegen


@intrinsic
def load(typingctx, array, index, left):
    """The numbers of a flat float array from `index` on, 0 from lane `left` on."""

    def codegen(context, builder, sig, args):
        array, index, left = args
        vector = context.get_value_type(sig.return_type)
        return code.load(builder, code.place_of(context, builder, sig.args[0], array, index, vector), left)

    return Vector(array.dtype)(array, types.intp, types.intp), codegen


@intrinsic
def load_like(typingctx, like, array, index, left):
    """As `load`, as many lanes as `like` has."""

    def codegen(context, builder, sig, args):
        _, array, index, left = args
        vector = context.get_value_type(sig.return_type)
        return code.load(builder, code.place_of(context, builder, sig.args[1], array, index, vector), left)

    return like.of(array.dtype)(like, array, types.intp, types.intp), codegen


@intrinsic
def ask_for(typingctx, like, array, index):
    """Let the caches load as many numbers from `index` on as `like` has lanes; they may lie behind the array's end.

    Processors see themselves what is read in a row, but only within a page of memory.
    """

    def codegen(context, builder, sig, args):
        _, array, index = args
        vector = context.get_value_type(sig.args[0])
        code.ask_for(builder, code.place_of(context, builder, sig.args[1], array, index, vector))
        return context.get_dummy_value()

    return types.void(like, array, types.intp), codegen


@intrinsic
def load_every(typingctx, array, index, left, stride):
    """As `load` where `stride` is 1; with stride 0 the number at `index` in every lane."""

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
        return code.joined(builder, (same, from_one), (row, from_many))

    return Vector(array.dtype)(array, types.intp, types.intp, types.intp), codegen


@intrinsic
def store(typingctx, array, index, left, value):
    """Write the lanes below `left` to a flat array of the vector's type from `index` on."""

    def codegen(context, builder, sig, args):
        array, index, left, value = args
        place = code.place_of(context, builder, sig.args[0], array, index, value.type)
        code.store(builder, value, place, left)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, value), codegen


@intrinsic
def store_large(typingctx, array, index, left, value, past):
    """As `store`; where `past`, a whole vector is written past the caches, to where a line of theirs begins.

    It spares reading the lines first, so it is for results that are too large to be found there later.
    """

    def codegen(context, builder, sig, args):
        array, index, left, value, past = args
        place = code.place_of(context, builder, sig.args[0], array, index, value.type)
        code.store_large(builder, value, place, left, past)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, value, types.boolean), codegen


@intrinsic
def fence(typingctx):
    """All that was written until here is seen by every thread."""

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
    """Write truth values to a flat array: 1 or 0 to floats (see `store_large`) or uint8; nothing to int32.

    There they are bits, which are gathered with `with_bit` and written by `store_words`.
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
    """Write a row of `n_numbers` numbers, or truth values as `store_spikes` does, all in one vector.

    Rows of whole pieces are written so, where `past` past the caches, to where a piece's address is a multiple of its
    size. Of others the whole vector is, up to `left`, as a vector that stops at the end of a row is slower: what it
    has too much is the place of rows that are to be written later.
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
    """Words without a bit, as many as `like` has lanes."""

    def codegen(context, builder, sig, args):
        return context.get_value_type(sig.return_type)(None)

    return like.of(types.int32)(like), codegen


@intrinsic
def with_bit(typingctx, words, fired, step):
    """Words with bit `step % 32` where `fired`."""

    def codegen(context, builder, sig, args):
        words, fired, step = args
        bit = builder.and_(builder.trunc(step, WORD), WORD(WORD_BITS - 1))
        every = code.splat(builder, builder.shl(WORD(1), bit), words.type.count)
        return builder.select(fired, builder.or_(words, every), words)

    return words(words, fired, types.intp), codegen


@intrinsic
def store_words(typingctx, spikes, index, left, words, step):
    """Write words with the bits of some steps to a flat int32 array, beside those of steps before; nothing to others.

    `step`: the first of those steps. Where it begins a word, what the array held is not looked at.
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
        code.store(builder, code.joined(builder, (words, from_first), (both, from_later)), place, left)
        return context.get_dummy_value()

    return types.void(spikes, types.intp, types.intp, words, types.intp), codegen

"""Vectors of 32 numbers for Numba kernels, where rows are too short for the compiler to vectorise, or too many.

32 numbers are several registers of any processor, so that their chains of operations overlap. A row of n numbers is
gone through in steps of `LANES`; `left` says how many are left: `load` gives 0 beyond them, `store` writes nothing
there. Arithmetic is rounded operation by operation, lane by lane as scalar code is (never a fused multiply-add).
"""

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

LANES = 32
WORD_BITS = 32
BYTES = {"float": 4, "double": 8, "i8": 1, "i32": 4}
SUFFIX = {"float": "f32", "double": "f64", "i8": "i8", "i32": "i32"}
WORD = ir.IntType(32)
LINE_BYTES = 64  # of the caches


class Vector(types.Type):
    """`LANES` numbers of a float type, truth values, or words of 32 bits."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, fe_type):
        element = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
        element |= {types.boolean: ir.IntType(1), types.int32: WORD}
        super().__init__(manager, fe_type, ir.VectorType(element[fe_type.dtype], LANES))


FLOATS = (Vector(types.float32), Vector(types.float64))
TRUTH = Vector(types.boolean)
WORDS = Vector(types.int32)


def _operator(function, result, emit) -> None:
    """Let kernels write `function` between two vectors of floats."""
    cases = [signature(result or kind, kind, kind) for kind in FLOATS]
    infer_global(function)(type(f"_{function.__name__}", (ConcreteTemplate,), {"cases": cases}))
    for kind in FLOATS:
        lower_builtin(function, kind, kind)(lambda context, builder, sig, args: emit(builder, *args))


_operator(operator.add, None, lambda builder, x, y: builder.fadd(x, y))
_operator(operator.sub, None, lambda builder, x, y: builder.fsub(x, y))
_operator(operator.mul, None, lambda builder, x, y: builder.fmul(x, y))
_operator(operator.truediv, None, lambda builder, x, y: builder.fdiv(x, y))
_operator(operator.ge, TRUTH, lambda builder, x, y: builder.fcmp_ordered(">=", x, y))
_operator(operator.ne, TRUTH, lambda builder, x, y: builder.fcmp_unordered("!=", x, y))


@intrinsic
def filled(typingctx, number):
    """The same number in every lane."""

    def codegen(context, builder, sig, args):
        return _splat(builder, args[0])

    return Vector(number)(number), codegen


@intrinsic
def where(typingctx, truth, yes, no):
    """Lanes of `yes` where true, else of `no`."""

    def codegen(context, builder, sig, args):
        return builder.select(*args)

    return yes(truth, yes, no), codegen


@intrinsic
def magnitude(typingctx, x):
    """|x|."""

    def codegen(context, builder, sig, args):
        return _unary(builder, "fabs", args[0])

    return x(x), codegen


@intrinsic
def exponential(typingctx, x):
    """e**x, lane by lane as the C library has it."""

    def codegen(context, builder, sig, args):
        return _unary(builder, "exp", args[0])

    return x(x), codegen


@intrinsic
def bits_of(typingctx, truth):
    """Truth values as bits, lane 0 the lowest."""

    def codegen(context, builder, sig, args):
        return builder.zext(builder.bitcast(args[0], ir.IntType(LANES)), ir.IntType(64))

    return types.int64(truth), codegen


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
        vector = context.get_value_type(sig.return_type)
        return _load(builder, _place(context, builder, sig.args[0], *args[:2], vector), args[2])

    return Vector(array.dtype)(array, types.intp, types.intp), codegen


@intrinsic
def load_every(typingctx, array, index, left, stride):
    """As `load` where `stride` is 1; with stride 0 the number at `index` in every lane."""

    def codegen(context, builder, sig, args):
        vector = context.get_value_type(sig.return_type)
        place = _place(context, builder, sig.args[0], *args[:2], vector)
        with builder.if_else(builder.icmp_signed("==", args[3], args[3].type(0))) as (one, many):
            with one:
                number = builder.load(builder.bitcast(place, vector.element.as_pointer()))
                same, from_one = _splat(builder, number), builder.block
            with many:
                row = _load(builder, place, args[2])
                from_many = builder.block
        return _joined(builder, (same, from_one), (row, from_many))

    return Vector(array.dtype)(array, types.intp, types.intp, types.intp), codegen


@intrinsic
def store(typingctx, array, index, left, value):
    """Write the lanes below `left` to a flat array of the vector's type from `index` on."""

    def codegen(context, builder, sig, args):
        place = _place(context, builder, sig.args[0], *args[:2], args[3].type)
        _store(builder, args[3], place, args[2])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, value), codegen


@intrinsic
def store_large(typingctx, array, index, left, value, past):
    """As `store`; where `past`, a whole vector is written past the caches, to where a line of theirs begins.

    It spares reading the lines first, so it is for results that are too large to be found there later.
    """

    def codegen(context, builder, sig, args):
        place = _place(context, builder, sig.args[0], *args[:2], args[3].type)
        _store_large(builder, args[3], place, args[2], args[4])
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
        wide = ir.VectorType(ir.DoubleType(), LANES)
        place = _place(context, builder, sig.args[0], *args[:2], wide)
        value = args[3] if args[3].type == wide else builder.fpext(args[3], wide)
        _store(builder, builder.fadd(_load(builder, place, args[2]), value), place, args[2])
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
        vector = ir.VectorType(context.get_value_type(dtype), LANES)
        place = _place(context, builder, sig.args[0], array, index, vector)
        if isinstance(dtype, types.Float):
            _store_large(builder, builder.uitofp(fired, vector), place, left, past)
        else:
            _store(builder, builder.zext(fired, vector), place, left)
        return context.get_dummy_value()

    return types.void(spikes, types.intp, types.intp, fired, types.boolean), codegen


@intrinsic
def no_bits(typingctx):
    """Words without a bit."""

    def codegen(context, builder, sig, args):
        return context.get_value_type(WORDS)(None)

    return WORDS(), codegen


@intrinsic
def with_bit(typingctx, words, fired, step):
    """Words with bit `step % 32` where `fired`."""

    def codegen(context, builder, sig, args):
        words, fired, step = args
        bit = builder.and_(builder.trunc(step, WORD), WORD(WORD_BITS - 1))
        return builder.select(fired, builder.or_(words, _splat(builder, builder.shl(WORD(1), bit))), words)

    return WORDS(words, fired, types.intp), codegen


@intrinsic
def store_words(typingctx, spikes, index, left, words, step):
    """Write words with the bits of some steps to a flat int32 array, beside those of steps before; nothing to others.

    `step`: the first of those steps. Where it begins a word, what the array held is not looked at.
    """

    def codegen(context, builder, sig, args):
        array, index, left, words, step = args
        if sig.args[0].dtype != types.int32:
            return context.get_dummy_value()
        place = _place(context, builder, sig.args[0], array, index, words.type)
        bit = builder.and_(builder.trunc(step, WORD), WORD(WORD_BITS - 1))
        with builder.if_else(builder.icmp_signed("==", bit, WORD(0))) as (first, later):
            with first:
                from_first = builder.block
            with later:
                both = builder.or_(_load(builder, place, left), words)
                from_later = builder.block
        _store(builder, _joined(builder, (words, from_first), (both, from_later)), place, left)
        return context.get_dummy_value()

    return types.void(spikes, types.intp, types.intp, words, types.intp), codegen


def _splat(builder, number):
    empty = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    lanes = ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES)
    return builder.shuffle_vector(builder.insert_element(empty, number, WORD(0)), empty, lanes)


def _unary(builder, name: str, x):
    kind = ir.FunctionType(x.type, [x.type])
    name = f"llvm.{name}.v{LANES}{SUFFIX[str(x.type.element)]}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [x])


def _place(context, builder, array_type, array, index, vector):
    """A pointer to `vector` at an index of a flat array."""
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _load(builder, place, left):
    vector = place.type.pointee
    size = BYTES[str(vector.element)]
    with builder.if_else(_is_whole(builder, left), likely=True) as (whole, part):
        with whole:
            every, from_whole = builder.load(place, align=size), builder.block
        with part:
            some = _masked(builder, "load", vector, [place, WORD(size), _inside(builder, left), vector(None)])
            from_part = builder.block
    return _joined(builder, (every, from_whole), (some, from_part))


def _store(builder, value, place, left):
    size = BYTES[str(value.type.element)]
    with builder.if_else(_is_whole(builder, left), likely=True) as (whole, part):
        with whole:
            builder.store(value, place, align=size)
        with part:
            _masked(builder, "store", ir.VoidType(), [value, place, WORD(size), _inside(builder, left)])


def _store_large(builder, value, place, left, past):
    with builder.if_else(past) as (large, small):
        with large:
            stored = builder.store(value, place, align=LINE_BYTES)
            stored.set_metadata("nontemporal", builder.module.add_metadata([WORD(1)]))
        with small:
            _store(builder, value, place, left)


def _is_whole(builder, left):
    return builder.icmp_signed(">=", left, left.type(LANES))


def _inside(builder, left):
    """Which lanes are below `left`."""
    lanes = ir.Constant(ir.VectorType(WORD, LANES), list(range(LANES)))
    return builder.icmp_signed("<", lanes, _splat(builder, builder.trunc(left, WORD)))


def _masked(builder, name: str, result, arguments):
    vector = next(a.type for a in arguments if isinstance(a.type, ir.VectorType) and a.type.element != ir.IntType(1))
    kind = ir.FunctionType(result, [a.type for a in arguments])
    name = f"llvm.masked.{name}.v{LANES}{SUFFIX[str(vector.element)]}.p0"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _joined(builder, *cases):
    """The value of whichever block control came from."""
    phi = builder.phi(cases[0][0].type)
    for value, block in cases:
        phi.add_incoming(value, block)
    return phi

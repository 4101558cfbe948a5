"""Every map and product against plain matrices."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from nwcompile.errors import ModelError
from nwcompile.ir.connection import Conv2d
from nwcompile.passes.prepare.fold import (
    Convolution,
    Diagonal,
    add_maps,
    apply_map,
    apply_transpose,
    compose,
    linear_map,
    row_sums,
    to_connection,
    to_matrix,
)
from nwcompile.sim.reference.synaptic_sums import apply_connection

SHAPE = (4, 5, 4)
N = 80
KINDS = ("convolution", "depthwise", "diagonal", "channels", "dense", "sparse")


def integers(rng, *shape):
    return rng.integers(-3, 4, shape).astype(np.float64)


def convolution(rng, groups: int) -> Convolution:
    """A random convolution that keeps SHAPE."""
    while True:
        kernel, dilation = tuple(rng.integers(1, 4, 2)), tuple(rng.integers(1, 3, 2))
        span = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        if all(s % 2 == 0 for s in span):
            padding = tuple(s // 2 for s in span)
            c = Conv2d("a", "b", integers(rng, 4, 4 // groups, *kernel), None, 1, padding, dilation, groups)
            return linear_map(c, SHAPE, SHAPE)


def random_map(rng, kind: str):
    if kind in ("convolution", "depthwise"):
        return convolution(rng, 4 if kind == "depthwise" else int(rng.choice([1, 2])))
    if kind == "diagonal":
        return Diagonal(integers(rng, N))
    if kind == "channels":
        return Diagonal(np.repeat(integers(rng, 4), 20))
    weight = integers(rng, N, N)
    return weight if kind == "dense" else csr_array(weight * (rng.random((N, N)) < 0.05))


def plain(m) -> np.ndarray:
    m = to_matrix(m)
    return m if isinstance(m, np.ndarray) else m.toarray()


maps = st.tuples(st.integers(0, 10**6), st.sampled_from(KINDS), st.sampled_from(KINDS))


@given(maps)
def test_compose_is_the_product_of_the_matrices(drawn):
    seed, first, second = drawn
    rng = np.random.default_rng(seed)
    a, b = random_map(rng, first), random_map(rng, second)
    np.testing.assert_array_equal(plain(compose(b, a)), plain(b) @ plain(a))


@given(maps)
def test_add_is_the_sum_of_the_matrices_or_refuses(drawn):
    seed, first, second = drawn
    rng = np.random.default_rng(seed)
    a, b = random_map(rng, first), random_map(rng, second)
    total = add_maps(a, b)
    if total is None:
        assert isinstance(a, Convolution) or isinstance(b, Convolution)
    else:
        np.testing.assert_array_equal(plain(total), plain(a) + plain(b))


def test_add_makes_one_convolution_of_two_alike():
    rng = np.random.default_rng(0)
    a = convolution(rng, 1)
    b = Convolution(integers(rng, *a.weight.shape), a.stride, a.padding, a.dilation, a.groups, a.source, a.target)
    assert isinstance(add_maps(a, b), Convolution)


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_forward_and_backward_apply_the_matrix_and_its_transpose(seed, kind):
    rng = np.random.default_rng(seed)
    m, x = random_map(rng, kind), integers(rng, 3, N)
    np.testing.assert_array_equal(apply_map(m, x), x @ plain(m).T)
    np.testing.assert_array_equal(apply_transpose(m, x), x @ plain(m))
    assert apply_map(m, x[:0]).shape == (0, N)


def weights_of_any_size(seed) -> tuple[Convolution, np.random.Generator]:
    rng = np.random.default_rng(seed)
    c = convolution(rng, int(rng.choice([1, 1, 2])))
    return replace(c, weight=rng.normal(size=c.weight.shape)), rng


@given(st.integers(0, 10**6))
def test_forward_of_maps_mostly_0_gives_the_bits_that_it_gives_of_others(seed):
    m, rng = weights_of_any_size(seed)
    x = rng.normal(size=(9, N)) * (rng.random((9, N)) < 0.1)
    full = rng.normal(size=(100, N))  # with which x is not mostly 0
    np.testing.assert_array_equal(apply_map(m, x), apply_map(m, np.concatenate([x, full]))[: len(x)])


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_row_sums_are_what_ones_give(seed, kind):
    m = weights_of_any_size(seed)[0] if kind == "convolution" else random_map(np.random.default_rng(seed), kind)
    np.testing.assert_array_equal(row_sums(m), apply_map(m, np.ones((1, N)))[0])


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_connection_computes_what_its_map_says(seed, kind):
    rng = np.random.default_rng(seed)
    m, x, bias = random_map(rng, kind), integers(rng, 3, N), integers(rng, N)
    c = to_connection(m, "a", "b", 0, bias, SHAPE, SHAPE)
    got = apply_connection(c, x.reshape(3, *SHAPE).astype(np.float32), SHAPE)
    np.testing.assert_array_equal(got.reshape(3, -1), apply_map(m, x) + bias)


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2))
def test_compose_of_strided_convolutions_is_exact_whether_or_not_it_stays_one(seed, one, two, pad_one, pad_two):
    rng = np.random.default_rng(seed)
    a = Conv2d("a", "b", integers(rng, 2, 1, *rng.integers(1, 4, 2)), None, one, pad_one, int(rng.integers(1, 3)), 2)
    b = Conv2d("b", "c", integers(rng, 3, 2, *rng.integers(1, 3, 2)), None, two, pad_two, int(rng.integers(1, 3)))
    shape = (2, int(rng.integers(4, 9)), int(rng.integers(4, 9)))
    try:
        middle = a.output_shape(shape)
        end = b.output_shape(middle)
    except ModelError:
        return
    first, second = linear_map(a, shape, middle), linear_map(b, middle, end)
    product = compose(second, first)
    np.testing.assert_array_equal(plain(product), plain(second) @ plain(first))
    assert isinstance(product, Convolution) or pad_two or end[1:] != middle[1:]


@pytest.mark.parametrize("pad_two", [0, 1])
def test_compose_of_pooling_and_convolution_stays_symbolic(pad_two):
    rng = np.random.default_rng(1)
    pool = Conv2d("a", "b", np.ones((2, 1, 2, 2)), None, 2, 0, 1, 2)
    conv = Conv2d("b", "c", integers(rng, 3, 2, 3, 3), None, 1, pad_two)
    a, b = linear_map(pool, (2, 8, 8), (2, 4, 4)), linear_map(conv, (2, 4, 4), conv.output_shape((2, 4, 4)))
    product = compose(b, a)
    assert isinstance(product, Convolution) and product.padding == (2 * pad_two, 2 * pad_two)
    np.testing.assert_array_equal(plain(product), plain(b) @ plain(a))

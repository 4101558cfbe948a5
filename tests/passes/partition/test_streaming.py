"""Streaming: every vertex goes once to the part that scores best for it."""

import numpy as np

from nwcompile.kernels.mapping.streaming import stream


def csr(n: int, edges: dict[tuple[int, int], int]):
    matrix = np.zeros((n, n), np.int32)
    for (a, b), weight in edges.items():
        matrix[a, b] = matrix[b, a] = weight
    rows, other = np.nonzero(matrix)
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]), other, matrix[rows, other]


def test_stream_gives_a_vertex_to_the_part_it_exchanges_most_with_while_that_has_room():
    graph = csr(5, {(0, 2): 3, (1, 2): 2, (0, 3): 9, (0, 4): 9, (1, 4): 1})
    room, order = np.array([2, 3]), np.arange(5)
    # 0 -> the first; 1 -> the freer; 2 scores 3 * 1/2 and 2 * 2/3; 3 and 4 find the first full
    assert stream(*graph, np.ones(5, np.int64), room, order).tolist() == [0, 1, 0, 1, 1]


def test_stream_lets_vertices_without_size_draw_and_overfills_only_where_nothing_is_left():
    graph = csr(4, {(0, 1): 5, (0, 2): 5})
    size = np.array([0, 2, 2, 2])
    assert stream(*graph, size, np.array([2, 2]), np.arange(4)).tolist() == [0, 0, 1, 0]

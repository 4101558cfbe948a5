"""Compare a module's results with what its network outputs, and read them out of the layers if these differ."""

from typing import TYPE_CHECKING, Any

import torch

from nwcompile.errors import ModelError
from nwcompile.frontend.torch.operators.connect import MOVES
from nwcompile.frontend.torch.operators.graph import Node, StepGraph
from nwcompile.frontend.torch.operators.neurons import is_of_messages
from nwcompile.frontend.torch.operators.readout import (
    Record,
    Records,
    build_readout,
    record_layers,
)
from nwcompile.frontend.torch.operators.record import Op
from nwcompile.frontend.torch.operators.roll import find_operands
from nwcompile.frontend.torch.results import is_multiple
from nwcompile.ir.readout import Readout

if TYPE_CHECKING:
    from nwcompile.frontend.torch.operators import Assembler

UNKNOWN = "?"
MOST_NAMED = 5  # operators that a warning lists


def describe_results(assembler: "Assembler", runs: list[tuple[dict, dict]], sizes: list[int]) -> list[str]:
    """Name what each of the module's results has and the network's outputs, in each step or summed, have not, or "".

    `runs`: the values of the module's operators and of the graph's nodes, for several inputs. `sizes`: the number of
    operators of each result.
    """
    graph, network = assembler.graph, assembler.network
    things, start = [], 0
    for size in sizes:
        ops = graph.outputs[start : start + size]
        start += size
        if not any(op.depends for op in ops):
            things.append("")
            continue
        result = [torch.stack([expected.get(op, op.value).reshape(-1) for op in ops]) for expected, _ in runs]
        thing = _describe_result(result, assembler, [values for _, values in runs])
        things.append(_name_operators(ops, assembler) if thing == UNKNOWN else thing)
    return things if network.layers else [""] * len(things)


def _name_operators(result: list[Op], assembler: "Assembler") -> str:
    """Name the operators that a result takes and the network has not."""
    graph = assembler.graph
    taken = {(op.name, op.site) for op in find_operands(result)}
    ops = [node.op for node in graph.nodes if node not in assembler.used] + graph.later
    ops = [op for op in ops if op.name not in (*MOVES, "getitem") and (op.name, op.site) in taken]
    texts = list(dict.fromkeys(f"torch's {op.name.strip('_')} ({op.site})" for op in ops))
    texts = texts or ["the choice of some steps or entries"]
    return " and ".join(texts[:MOST_NAMED]) + (f" and {len(texts) - MOST_NAMED} more" if texts[MOST_NAMED:] else "")


def _describe_result(result: list[torch.Tensor], assembler: "Assembler", runs: list[dict]) -> str:
    """Return "" for the record or the sum of an output; else what the result is, or UNKNOWN."""
    graph, network = assembler.graph, assembler.network

    def is_record(node: Node) -> bool:
        return _is_record(result, [stack_steps(values, node, graph) for values in runs])

    for name in sorted(assembler.results, key=lambda name: name not in network.outputs):
        if is_record(assembler.results[name]):
            return "" if name in network.outputs else f"the choice of the hidden layer {name!r}"
    for name, region in assembler.layers.items():
        inside = [n for n in region.nodes if n.size == region.result.size and not is_of_messages(n, region.members)]
        if region.fires and any(map(is_record, inside)):
            return f"the membrane of layer {name!r} (simulate(..., record='all') gives it in Run.states)"
    return UNKNOWN


def _is_record(results: list[torch.Tensor], records: list[torch.Tensor]) -> bool:
    """Return whether results are the records, both `[T, n]`, or their sums `[1, n]`, times a positive number."""
    if results[0].shape != records[0].shape:
        records = [record.sum(0, keepdim=True) for record in records]
    if results[0].shape != records[0].shape:
        return False
    result, record = torch.cat(results).double(), torch.cat(records).double()
    return is_multiple(result, record) if record.any() else not result.any()


def find_readout(
    assembler: "Assembler", runs: list[tuple[dict, dict]], inputs: torch.Tensor, outputs: list[Op]
) -> Readout | None:
    """Return the readout of the module's first result; None if it takes more than what the layers do."""
    graph, network = assembler.graph, assembler.network
    if not network.layers:
        return None
    run = record_layers(network, inputs)
    records = Records(network, run)
    results = {node: name for name, node in assembler.results.items()}
    inside = {node: name for name, region in assembler.layers.items() for node in region.nodes}

    def find_record(item: Any) -> Record | None:
        if item in results:
            neuron = network.node(results[item]).neuron
            return Record(results[item], None if neuron.fires else neuron.readout)
        if item not in inside or item.size != assembler.layers[inside[item]].result.size:
            return None
        values = torch.stack([stack_steps(values, item, graph) for _, values in runs])
        return records.find(values, inside[item])

    try:
        expected = [torch.stack([values.get(op, op.value) for op in outputs]) for values, _ in runs]
        return build_readout(graph, graph.n_steps, find_record, outputs, run, torch.stack(expected))
    except ModelError:
        return None


def stack_steps(values: dict, node: Node, graph: StepGraph) -> torch.Tensor:
    """Return a node's value in all steps, `[T, n]`."""
    return torch.stack([values[node, t].reshape(-1) for t in range(graph.n_steps)])

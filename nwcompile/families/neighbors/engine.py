"""Chips whose cores wait for their neighbors only: the tables for kernel.py, and the run."""

from typing import TYPE_CHECKING

import numpy as np

from nwcompile.errors import BackendError
from nwcompile.families.neighbors.cost import list_tokens
from nwcompile.families.neighbors.kernel import (
    OVERTAKEN,
    TOO_OFTEN,
    InputAxons,
    Neighbors,
    Pace,
    Simulation,
    TokenTables,
    run_neighbors,
)
from nwcompile.ir.flat import csr_offset
from nwcompile.ir.program import Program
from nwcompile.kernels.cores.tables import AXON, MESSAGE, STUCK, Outbox
from nwcompile.kernels.cycle import INTERRUPTED, EventNetwork, LossyDelivery
from nwcompile.sim.cycle.axons import AxonTables
from nwcompile.sim.cycle.engine import Engine

if TYPE_CHECKING:
    from nwcompile.sim.cycle.run import ChipRun, Result, State


def append_tokens(program: Program, tables: AxonTables) -> tuple[AxonTables, TokenTables]:
    """Append the axons of tokens to the table; return it and the tokens that each end sends and receives."""
    axons, sent = tables.axons, list_tokens(program)
    n_axons, n_ends = len(axons.row), axons.n_sites
    here, there = sent.ends.T
    rows = np.zeros(len(sent.ends), AXON)
    rows["source"], rows["core"], rows["to"], rows["flits"] = -1, there, tables.sites.site[there], sent.flits
    rows["ticks"] = np.where(there < axons.n_cores, program.chip.cost.message_in_cycles or 0, 0) * program.chip.ticks[0]
    rows["hops_ew"], rows["hops_ns"] = sent.hops.T
    of_end = np.bincount(here, minlength=n_ends)
    return tables._replace(axons=axons._replace(row=np.concatenate([axons.row, rows]))), TokenTables(
        n_axons=n_axons,
        first=csr_offset(of_end),
        n_taken=np.bincount(there, minlength=n_ends),
        place=csr_offset(n_messages := _n_messages(program, tables) + of_end)[:-1],
        n_places=int(n_messages.sum()),
    )


def _n_messages(program: Program, tables: AxonTables) -> np.ndarray:
    """Return int64[core and io site]: the most messages that each sends in a step, without tokens."""
    core_of, n_cores = program.core_of, tables.axons.n_cores
    on_chip = core_of >= 0
    n_messages = np.zeros(tables.axons.n_sites, np.int64)
    np.add.at(n_messages, core_of[on_chip], np.diff(tables.fan_out.offset)[on_chip])
    n_messages[n_cores:] = np.diff(tables.io.first)
    return n_messages


def input_axons(program: Program) -> InputAxons:
    """Return the axons of input lines by core, and the lines without axons."""
    axons, n_lines = program.axons, int(np.count_nonzero(program.core_of < 0))
    core = axons.core[: axons.offset[n_lines]]
    return InputAxons(
        first=csr_offset(np.bincount(core, minlength=program.mapping.n_cores)),
        axon=np.argsort(core, kind="stable"),
        register=np.flatnonzero(np.diff(axons.offset[: n_lines + 1]) == 0),
    )


def _explain_stop(program: Program, code: int, where: np.ndarray, pace: Pace) -> BackendError:
    """Return the error for a step, `where` = (sample, hardware step), that some core does not finish."""
    chip, (sample, step) = program.chip, where.tolist()
    late = np.flatnonzero(pace.step == step)
    worst = int(late[pace.left[late, step & 1].argmax()])
    what = f"core {worst}" if worst < program.mapping.n_cores else f"io site {worst - program.mapping.n_cores}"
    waits = f"{what} still waits for {pace.left[worst, step & 1]} messages and tokens"
    place, limit = f"step {step} of sample {sample} on {chip.name}", chip.noc.max_step_cycles
    if code == STUCK:
        return BackendError(f"{place}: cores wait for each other forever, {waits}; please report this chip file")
    if limit is None:
        return BackendError(
            f"{place}: not done after twice the sequential time of all work so far, {waits}; please report this chip "
            "file"
        )
    return BackendError(
        f"{place}: not done {limit} cycles after the step before (noc.max_step_cycles), {waits}; send less, place it "
        "again, or raise noc.max_step_cycles"
    )


class NeighborEngine(Engine):
    """Routers, by events, and the tokens of cores that wait for their neighbors only."""

    has_lockstep = False

    def __init__(self, program: Program):
        super().__init__(program)
        self.axons, self.tokens = append_tokens(program, self.axons)

    def run_steps(self, chip_run: "ChipRun", job, x: np.ndarray, result: "Result", state: "State") -> None:
        """Simulate whole samples x int32[b, step, input line]. Raises BackendError if a step does not end."""
        program, network = chip_run.program, state.network
        assert chip_run.members is not None and isinstance(network, EventNetwork), "it is a chip of these"
        n_ends, n_steps = len(self.tokens.n_taken), len(result.steps.cycles)
        work = state.cores.work
        outbox = Outbox(
            message=np.zeros(2 * self.tokens.n_places, MESSAGE),
            first=np.zeros(n_ends + 1, np.int64),
            tail=np.zeros(n_ends, np.int64),
        )
        payload = np.zeros((2, len(program.core_of)), np.int64)
        simulation = Simulation(
            plan=chip_run.plan,
            job=job,
            chip=state.cores._replace(work=work._replace(outbox=outbox)),
            net=state.net,
            programs=state.programs,
            by_message=LossyDelivery(chip_run.members, chip_run.axons.fan_out.sent, payload),
            event=network,
            neurons=result.neurons,
            steps=result.steps,
        )
        pace = Pace(
            step=np.zeros(n_ends, np.int64),
            left=np.zeros((n_ends, 2), np.int64),
            done_at=np.zeros((n_ends, 2), np.int64),
            n_ended=np.zeros(n_steps, np.int64),
            ended_at=np.zeros(n_steps, np.int64),
            work=np.zeros(1, np.int64),
        )
        code = run_neighbors(simulation, Neighbors(self.tokens, input_axons(program), pace), x)
        assert code != OVERTAKEN, "a message came before its receiver had visited its neurons"
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code < 0 and code != TOO_OFTEN:
            raise _explain_stop(program, code, result.steps.stopped, pace)
        result.steps.flits[:1] = network.flits


ENGINE = NeighborEngine

"""Whether two versions of the code make the same programs: small networks, compiled and simulated, bit by bit.

    python benchmarks/same_programs.py record OUT.json
    python benchmarks/same_programs.py compare OLD.json [NEW.json] [--only NAME]
    python benchmarks/same_programs.py list

A refactoring changes no program. `record` compiles every case and keeps what came out as text and SHA-256: each array
and each part of the manifest of the saved .nwc file, and the spikes, states, counters and times that every backend
gives for a small input, for some cases also as a stream, as totals and with a checkpoint. `compare` sets a record
beside another one, or beside what the code at hand gives now, prints a line for each case, "same" or the first part
that differs, and ends with exit code 1 where anything differs. `list` shows which case covers which chip, partitioner,
placer, objective, option and kind of network.

The code is whatever `import nwcompile` finds (PYTHONPATH=... chooses it; both commands name it). Only its public names
are used, so that modules may move. What was renamed on purpose is in `RENAMED_KEYS` and `RENAMED_TEXTS`. Where
Mt-KaHyPar is installed there is one case more, for its partitioner.

Not compared: versions, `chip_hash` (of the chip's texts too, which are compared as texts), energies and seconds
(they follow from counters and cycles). Two records are only alike where libraries and machine are: `compare` says
where they are not.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import time
import warnings
import zipfile
from dataclasses import fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"
import numpy as np
from same_programs_cases import HYPERGRAPH, IF_INSTALLED, N_STEPS, NETWORKS, Case, cases, spikes_for

import nwcompile as nw
from nwcompile.checkpoint import use_checkpoint

RENAMED_KEYS = {"optimise": "optimize"}  # of options and of the manifest: old -> new
RENAMED_TEXTS = {"tests/sim/test_noc.py": "tests/sim/cycle/test_noc.py"}  # of options, warnings, notes and chip texts
BACKENDS = ("reference", "cycle", "sequence")
LIBRARIES = ("numpy", "scipy", "numba", "torch", "pymetis", "mtkahypar", "nir", "h5py")
N_SAMPLES = 2  # of the simulated input


def option_names() -> dict[str, str]:
    """Today's name of every option -> the name that this code has for it."""
    has = {f.name for f in fields(nw.Options)}
    old = {new: old for old, new in RENAMED_KEYS.items()}
    return {new: new if new in has else old.get(new, new) for new in {RENAMED_KEYS.get(name, name) for name in has}}


def parts_of(case: Case) -> dict[str, str | list[str]]:
    """All that is compared of a case by name: a text or a hash, or the texts of options, warnings and the like."""
    chip = nw.Chip.load(case.chip).replace(case.chip_keys)
    network, warned = made(case, chip)
    names = option_names()
    options = nw.Options(**{names[name]: value for name, value in case.options.items()})
    x = spikes_for(network, case.n_calibration, 1, case.values) if case.n_calibration and network.inputs else None
    mapping = None if case.by_hand is None else case.by_hand(network)
    program = nw.compile(network, chip, x, options, mapping)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.nwc"
        program.save(path)
        parts = {"network": network.hash, "import warnings": warned, **file_parts(path)}
        program = nw.Program.load(path)
    x = spikes_for(program.network, N_SAMPLES, 2, case.values) or None
    steps = None if x else N_STEPS
    for backend in BACKENDS:
        run = nw.simulate(program, x, backend, record="all", steps=steps)
        parts |= {f"{backend} {name}": value for name, value in run_parts(run).items()}
        if "stream" in case.also:
            parts |= stream_parts(program, x, backend)
    if "totals" in case.also:
        run = nw.simulate(program, x, "cycle", record="totals", steps=steps)
        parts |= {f"totals, {name}": value for name, value in run_parts(run).items()}
    if "checkpoint" in case.also:
        parts |= checkpoint_parts(network, chip, case, options, program, x)
    return parts


def stream_parts(program: nw.Program, x: dict[str, np.ndarray], backend: str) -> dict[str, str]:
    """Spikes and counters of the chunks of a stream of the first sample, 1, 2, 3, ... steps long."""
    session, chunks, first = nw.Session(program, backend), [], 0
    while first < N_STEPS:
        last = first + len(chunks) + 1
        chunks.append(session.feed({name: samples[0, first:last] for name, samples in x.items()}))
        first = last
    chunks.append(session.close())
    spikes = {f"spikes of {name}": [chunk.spikes[name] for chunk in chunks] for name in chunks[0].spikes}
    counters = {f"counter {name}": [chunk.counters[name] for chunk in chunks] for name in chunks[0].counters or ()}
    texts = {name: array_text(np.concatenate(parts, 1)) for name, parts in spikes.items()}
    texts |= {name: array_text(np.concatenate(parts)) for name, parts in counters.items()}
    return {f"{backend} stream, {name}": text for name, text in texts.items()}


def checkpoint_parts(
    network: nw.Network, chip: nw.Chip, case: Case, options: nw.Options, program: nw.Program, x: dict
) -> dict[str, str]:
    """The program compiled, and its runs, with a checkpoint, each made and then read out of it."""
    samples = spikes_for(network, case.n_calibration, 1, case.values) if case.n_calibration else None
    parts = {}
    with tempfile.TemporaryDirectory() as folder:
        for when in ("made", "read"):
            with use_checkpoint(folder):
                parts[f"checkpoint {when}, program"] = nw.compile(network, chip, samples, options).hash
                for backend in BACKENDS:
                    run = nw.simulate(program, x, backend, record="all")
                    texts = run_parts(run)
                    parts |= {f"checkpoint {when}, {backend} {name}": text for name, text in texts.items()}
    return parts


def made(case: Case, chip: nw.Chip) -> tuple[nw.Network, list[str]]:
    """The network of a case, and the warnings of making it, folders left out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network = NETWORKS[case.network](chip)
    texts = [str(w.message) for w in caught if issubclass(w.category, nw.errors.NwWarning)]
    return network, [re.sub(r"\S*/(?=net\.nir)", "", text) for text in texts]


def file_parts(path: Path) -> dict[str, str | list[str]]:
    """The parts of a saved program: what its manifest says, then each of its arrays."""
    with zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        arrays = {
            name.removesuffix(".npy"): np.load(BytesIO(archive.read(name)), allow_pickle=False)
            for name in sorted(archive.namelist())
            if name.endswith(".npy")
        }
    manifest = {RENAMED_KEYS.get(key, key): value for key, value in manifest.items()}
    for key in ("tool", "version", "schema", "chip_hash"):
        manifest.pop(key, None)
    chip, options = manifest.pop("chip"), manifest.pop("options")
    notes, said = manifest.pop("mapping_note"), manifest.pop("warnings")
    sources = [f"{key}: {text}" for key, text in sorted(chip.pop("sources", {}).items())]
    parts: dict[str, str | list[str]] = {
        "options": sorted(f"{RENAMED_KEYS.get(name, name)}={canonical(value)}" for name, value in options.items()),
        "warnings": said,
        "notes": [f"core {core}: {text}" for core, text in sorted(notes.items(), key=lambda item: int(item[0]))],
        "chip texts": [chip.pop("description", ""), *sources],
    }
    manifest["chip"] = chip
    parts |= {f"manifest {key}": sha(canonical(manifest[key]).encode()) for key in sorted(manifest)}
    return parts | {f"array {name}": array_text(array) for name, array in arrays.items()}


def run_parts(run) -> dict[str, str]:
    """Spikes, states, counters, cycles, flits, losses and bus schedule of a run."""
    arrays = {f"spikes of {layer}": spikes for layer, spikes in run.spikes.items()}
    arrays |= {f"state {state} of {layer}": v for layer, states in run.states.items() for state, v in states.items()}
    arrays |= {f"counter {name}": values for name, values in run.counters.items()}
    arrays |= {"step_cycles": run.step_cycles, "link_flits": run.link_flits}
    for kind in ("dropped", "bus"):
        values = getattr(run, kind)
        if is_dataclass(values):
            arrays |= {f"{kind} {f.name}": getattr(values, f.name) for f in fields(values)}
    return {name: "none" if array is None else array_text(np.asarray(array)) for name, array in arrays.items()}


def array_text(array: np.ndarray) -> str:
    """Type, shape and SHA-256 of an array."""
    return f"{array.dtype.str} {list(array.shape)} {sha(np.ascontiguousarray(array).tobytes())}"


def canonical(value) -> str:
    """JSON with sorted keys; numbers as Python writes them, so that no bit is lost."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def sha(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def computed(case: Case) -> dict:
    """The parts of a case, or the part `error` with what it raised."""
    try:
        return parts_of(case)
    except Exception as e:  # of any kind: it is what the code gives, and no other case is lost for it
        return {"error": f"{type(e).__name__}: {e}"}


def difference(old: dict, new: dict) -> str | None:
    """The first part of a case that is not the same, and how many more are not; None where all are."""
    for side, parts in (("old", old), ("new", new)):
        if "error" in parts:
            return f"{side} code: {parts['error']}"
    differences = []
    new = {**new, "options": without_new(old["options"], new["options"])}
    for name in dict.fromkeys([*old, *new]):
        if name not in new or name not in old:
            differences.append(f"{name}: only in the {'old' if name in old else 'new'} one")
        elif isinstance(old[name], list):
            differences += [f"{name}: {text}" for text in text_differences(old[name], new[name])[:1]]
        elif old[name] != new[name]:
            differences.append(f"{name}: {short(old[name])} -> {short(new[name])}")
    if not differences:
        return None
    n_more = len(differences) - 1
    return differences[0] + (f" (and {n_more} more parts of {len({**old, **new})})" if n_more else "")


def without_new(old: list[str], new: list[str]) -> list[str]:
    """The options of a new record without those that the old one does not know, where they are as by default."""
    known = {text.partition("=")[0] for text in old}
    default = {f"{name}={canonical(value)}" for name, value in nw.Options().to_dict().items()}
    return [text for text in new if text.partition("=")[0] in known or text not in default]


def short(text: str) -> str:
    """The text with the beginnings of its hashes."""
    return re.sub("([0-9a-f]{12})[0-9a-f]{52}", r"\1", text)


def text_differences(old: list[str], new: list[str]) -> list[str]:
    """Pairs of texts that are not the same, renamed ones in their new words."""
    longest = max(len(old), len(new))
    pairs = zip(old + [""] * (longest - len(old)), new + [""] * (longest - len(new)), strict=True)
    return [f"{a!r} -> {b!r}" for a, b in pairs if b not in (a, renamed(a))]


def renamed(text: str) -> str:
    """An old text in the new words."""
    for old, new in RENAMED_TEXTS.items():
        text = text.replace(old, new)
    return text


def surroundings() -> dict[str, str]:
    """What else than the code results may depend on."""
    known = {"python": platform.python_version(), "machine": platform.machine()}
    for name in LIBRARIES:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            known[name] = "not installed"
    return known


def chosen(only: list[str] | None) -> list[Case]:
    """The cases of those names, or all."""
    known = {case.name: case for case in cases()}
    for name in only or ():
        if name not in known:
            sys.exit(f"there is no case {name!r} here; cases: {', '.join(known)}")
    return [known[name] for name in only or known]


def record(path: Path, only: list[str] | None) -> int:
    """Compute and keep all cases; 1 if any cannot be compiled."""
    print(f"code: {Path(nw.__file__).parent}")
    results, start = {}, time.perf_counter()
    for case in chosen(only):
        before = time.perf_counter()
        parts = results[case.name] = computed(case)
        seconds = time.perf_counter() - before
        print(f"{case.name:24} {seconds:6.1f} s  {parts.get('error') or f'{len(parts)} parts'}", flush=True)
    path.write_text(json.dumps({"surroundings": surroundings(), "cases": results}, indent=1) + "\n")
    n_errors = sum("error" in parts for parts in results.values())
    print(f"{len(results)} cases, {n_errors} errors, {time.perf_counter() - start:.0f} s: {path}")
    return int(n_errors > 0)


def compare(old_path: Path, new_path: Path | None, only: list[str] | None) -> int:
    """Set two records, or a record and the code at hand, side by side; 1 if any case differs."""
    old = json.loads(old_path.read_text())
    if new_path is None:
        print(f"code: {Path(nw.__file__).parent}")
        new, around = {case.name: case for case in cases()}, surroundings()
    else:
        kept_record = json.loads(new_path.read_text())
        new, around = kept_record["cases"], kept_record["surroundings"]
    for name in {**old["surroundings"], **around}:
        a, b = old["surroundings"].get(name), around.get(name)
        if a != b:
            print(f"note: {name} was {a}, is {b}")
    optional = {case.name for case in IF_INSTALLED}
    n_same = n_different = 0
    for name in only or list(dict.fromkeys([*old["cases"], *new])):
        if name in optional and (name in old["cases"]) != (name in new):
            print(f"{name:24} not compared: {HYPERGRAPH} is installed on one side only")
            continue
        if name not in old["cases"] or name not in new:
            text = f"only in the {'old' if name in old['cases'] else 'new' if name in new else 'list of names'}"
        else:
            parts = computed(new[name]) if isinstance(new[name], Case) else new[name]
            text = difference(old["cases"][name], parts)
        print(f"{name:24} {text or 'same'}", flush=True)
        n_same, n_different = n_same + (text is None), n_different + (text is not None)
    print(f"{n_same} same, {n_different} different")
    return int(n_different > 0)


def covered(case: Case) -> dict[str, str]:
    """The chip, the choices and the network of a case, those by default included."""
    names = option_names()
    default = {name: getattr(nw.Options(), here) for name, here in names.items()}
    words = {name: getattr(value, "__name__", value) for name, value in {**default, **case.options}.items()}
    main = {name: str(words.pop(name)) for name in ("partitioner", "placer", "optimize")}
    if case.by_hand is not None:
        main |= {"partitioner": "by hand", "placer": "by hand", "optimize": "-"}
    more = [f"{name}={value}" for name, value in sorted(words.items()) if value != default[name]]
    calibration = f"{case.n_calibration} samples" if case.n_calibration else "none"
    return {"chip": case.chip, **main, "network": case.network, "calibration": calibration, "options": "; ".join(more)}


def print_covering() -> int:
    """A table of the cases, then by chip, partitioner, ... the cases that have it."""
    table = {case.name: covered(case) for case in cases()}
    columns = list(next(iter(table.values())))
    texts = [("case", *columns), *((name, *cells.values()) for name, cells in table.items())]
    width = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for line in texts:
        print("  ".join(cell.ljust(n) for cell, n in zip(line, width, strict=True)).rstrip())
    for column in columns[:-1]:
        print(f"\n{column}")
        for value in sorted({cells[column] for cells in table.values()}):
            print(f"  {value:20} {', '.join(name for name, cells in table.items() if cells[column] == value)}")
    print("\nkeys of chips")
    for key in sorted({key for case in cases() for key in case.chip_keys}):
        print(f"  {key:30} {', '.join(case.name for case in cases() if key in case.chip_keys)}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("record", help="compute all cases and keep what came out")
    verb.add_argument("out", type=Path)
    verb.add_argument("--only", action="append", metavar="NAME")
    verb = verbs.add_parser("compare", help="set a record beside another one, or beside this code")
    verb.add_argument("old", type=Path)
    verb.add_argument("new", type=Path, nargs="?")
    verb.add_argument("--only", action="append", metavar="NAME")
    verbs.add_parser("list", help="which case covers what")
    args = parser.parse_args()
    if args.verb == "record":
        return record(args.out, args.only)
    if args.verb == "compare":
        return compare(args.old, args.new, args.only)
    return print_covering()


if __name__ == "__main__":
    sys.exit(main())

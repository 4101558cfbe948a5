"""`nwcompile noc`: lists of packets as people have them, and one sentence for those that cannot be read."""

import json

import pytest

HEAD = "time,src,dst,size\n"


def test_cli_noc_replays_a_list_into_a_file(command, folder):
    (folder / "in.csv").write_text("size,dst,src,time,note\n1,6,0,0,first\n1,0,6,4,second\n")
    code, out, err = command("noc --chip mesh_spec --trace-in in.csv --trace-out deep/out.csv --json")
    assert (code, err) == (0, "")
    assert json.loads(out)["hops"] == 12
    assert (folder / "deep" / "out.csv").read_text() == "inject,arrive\n0,23\n4,27\n"
    lines = command("noc --chip mesh_spec --trace-in in.csv")[1].splitlines()
    assert lines[2] == "makespan              27 cycles" and lines[-1] == "hops                  12"


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbf" + HEAD.encode() + b"0,0,6,1\n", f"\n{HEAD}\r\n0,0,6,1\n\n".encode()]
)
def test_cli_noc_reads_what_spreadsheets_and_editors_write(command, folder, content):
    """A mark of the encoding before the first column's name; empty lines."""
    (folder / "in.csv").write_bytes(content)
    code, out, _ = command("noc --chip mesh_spec --trace-in in.csv --json")
    assert code == 0 and json.loads(out)["packets"] == 1


WRONG = [
    ("", "in.csv: column time is missing; the first line must name time, src, dst, size"),
    ("time;src;dst;size\n", "in.csv: column time is missing; the first line must name time, src, dst, size"),
    (f"{HEAD}\n0,0,6,1\n0,0,6\n", "in.csv, line 4: '0,0,6' must hold whole numbers"),
    (f"{HEAD}0.5,0,6,1\n", "in.csv, line 2: '0.5,0,6,1' must hold whole numbers"),
    (f"{HEAD}0,0,64,1\n", "packet 0: dst 64 is outside 0..63 (mesh_spec has 64 cores)"),
]


@pytest.mark.parametrize(("content", "text"), WRONG)
def test_cli_noc_wrong_list_is_one_sentence(command, folder, content, text):
    (folder / "in.csv").write_text(content)
    assert command("noc --chip mesh_spec --trace-in in.csv --trace-out out.csv") == (
        2,
        "",
        f"nwcompile: error: {text}\n",
    )
    assert not (folder / "out.csv").exists()


@pytest.mark.parametrize(
    ("cycles", "said"),
    [
        (300, "too few cycles to tell whether the network is saturated; measure more than 300 (--cycles)"),
        (5000, "mean latency "),
    ],
)
def test_cli_noc_says_how_it_took_a_load_and_the_load_of_each_link(command, cycles, said):
    flags = f"noc --chip mesh_spec --set noc.columns=2 --set noc.rows=1 --traffic uniform --load 0.2 --cycles {cycles}"
    code, out, _ = command(flags)
    verdict, head, links = out.partition("load of each link")
    links = links.splitlines()[1:]
    assert code == 0 and said in " ".join(verdict.split()) and head
    # each of the two cores injects and ejects 0.2, and half of what it sends crosses to the other
    load_of = {line[2 : line.rindex("  ")].strip(): float(line.split()[-1]) for line in links}
    assert set(load_of) == {
        "(0, 0) E",
        "(1, 0) W",
        *(f"({x}, 0) port 0 {end}" for x in (0, 1) for end in ("inject", "eject")),
    }
    assert load_of["(0, 0) E"] == pytest.approx(0.1, abs=0.05) and [*load_of.values()] == sorted(load_of.values())[::-1]


def test_cli_noc_makes_a_table_of_several_loads(command):
    flags = "noc --chip mesh_spec --traffic uniform --cycles 2000"
    code, out, _ = command(f"{flags} --load 0.1,0.9")
    head, names, low, high = out.splitlines()
    assert len(head) <= 80 and head.startswith("uniform; loads in flits/core/cycle")
    assert code == 0 and names.split()[0] == "offered"
    assert high.split()[2] == "saturated"
    doc = json.loads(command(f"{flags} --load 0.1,0.9 --json")[1])
    assert float(low.split()[2]) == pytest.approx(doc["loads"][0]["mean_latency"], abs=0.01)
    alone = json.loads(command(f"{flags} --load 0.9 --json")[1])
    assert doc["loads"][1] == {name: value for name, value in alone.items() if name != "chip"}
    assert command(f"{flags} --load 0.1,")[2].endswith("argument --load: expected a number, got ''\n")

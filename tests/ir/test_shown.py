"""Lines for people: where they are wrapped."""

from nwcompile.ir.shown import wrap_lines


def test_lines_are_wrapped_below_their_last_column_and_numbers_keep_their_units():
    text = (
        "the step takes long, and most of it on this one link of the chip (0, 1) E, that is 12 us or 1 234 567 cycles"
    )
    head, *rest = wrap_lines([f"cause  {text}"])[0].split("\n")
    assert len(head) <= 80 and all(line.startswith(" " * 7) and line[7] != " " for line in rest)
    assert " ".join([head, *map(str.strip, rest)]) == f"cause  {text}"
    for n in range(60, 76):
        for held in ("12 us", "1 234 567", "(0, 1)", "< 0.1 %"):
            assert any(held in line for line in wrap_lines([f"{'x' * n} {held} end of the line"])[0].split("\n")), held


def test_a_name_that_is_longer_than_a_line_stays_whole():
    name = "/" + "folder/" * 20
    assert wrap_lines([f"report {name} is written"]) == [f"report\n  {name}\n  is written"]
    assert wrap_lines(["", "short  line"]) == ["", "short  line"]

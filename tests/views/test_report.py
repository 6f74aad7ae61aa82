import csv
import io
import json

import pytest
from rich.console import Console

from robust0.records import Flag, Report
from robust0.views.output import ReportFormat
from robust0.views.report import Column, draw_report, show_report, tables
from robust0.wording import interval, number, percent, seconds
from tests.auditing.factory_report import Recipe, make_report

FLAG = Flag(name="not-converged", fatal=False, message="12 of the last 50 rounds broke images")


def drawn(report, width, **options):
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    draw_report(report, console, **options)
    return console.file.getvalue()


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("mode", ["battery", "cascade"])
@pytest.mark.parametrize("width", [100, 60, 40, 20])
def test_everything_fits_every_width(mode, width):
    report = make_report(Recipe(budgets=(4, 2), mode=mode, flags=(FLAG,)))
    text = drawn(report, width, full=True)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    if width < 40:
        return
    results = report.results
    for result in results.budgets:
        for row in result.attacks:
            assert row.name in text
            if row.robust is not None:
                assert percent(row.robust) in text
                assert interval(row.robust) in text
            for value in (row.broken, row.only, row.median_distance, row.median_passes):
                assert number(value) in text
            assert seconds(report.run.attack_seconds[row.name]) in text
        for row in result.ensembles:
            assert percent(row.robust) in text
    for part in ("upper bound", "far from converged", "not-converged", "targeted attacks",
                 f"{mode} of 4 attacks, effort quick, 4 and 2 pixels, 40 images, seed 0",
                 "(subsampled)"):  # fmt: skip
        assert part in words(text)
    assert ("In a cascade" in text) is (mode == "cascade")


def test_wide_terminals_get_one_table_narrow_ones_several():
    report = make_report()
    heads = {w: sum(line.startswith("attack  ") for line in drawn(report, w).splitlines())
             for w in (100, 60, 40)}  # fmt: skip
    assert heads[100] == 1
    assert 1 < heads[60] <= heads[40]


def test_columns_are_packed_in_order_and_none_is_lost():
    columns = [Column("name", ("a",)), *(Column(f"column{i}", ("1",)) for i in range(7))]
    found = [[c.header for c in table.columns] for table in tables(columns, 30)]
    assert [head for part in found for head in part if head != "name"] == [
        f"column{i}" for i in range(7)
    ]
    assert all(part[0] == "name" and len(part) == 3 for part in found[:-1])


@pytest.mark.parametrize(
    ("effort", "sentence"),
    [("smoke", "next to nothing"), ("quick", "far from converged"),
     ("standard", "not converged"), ("own", "may not be converged"), ("paper", None)],
)  # fmt: skip
def test_below_paper_it_says_that_attacks_are_not_converged(effort, sentence):
    recipe = Recipe(effort=effort, breaks=lambda image, attack, budget: False)
    text = words(drawn(make_report(recipe), 100))
    if sentence is None:
        assert "converged" not in text
    else:
        assert sentence in text
    assert "upper bound" in text


def test_fatal_flags_stand_out():
    fatal = FLAG.model_copy(update={"fatal": True})
    assert "unreliable: not-converged" in drawn(make_report(Recipe(flags=(fatal,))), 100)


def test_hostile_names_cannot_steer_the_terminal():
    name = "\x1b[2J[bold red]x[/]\r\u202e\x07"
    flag = Flag(name=name, fatal=False, message=name)
    report = make_report(Recipe(model=name, flags=(flag,), untested=(name,), effort=name))
    text = drawn(report, 60)
    assert not any(bad in text for bad in ("\x1b", "\r", "\x07", "\u202e"))
    assert "[bold red]x[/]" in text


def test_json_is_the_report(capsys):
    report = make_report()
    show_report(report, "json")
    text = capsys.readouterr().out
    assert json.loads(text)["schema"] == 2
    assert Report.model_validate_json(text) == report


def test_tsv_is_complete(capsys):
    report = make_report(Recipe(budgets=(4, 2), flags=(FLAG,)))
    show_report(report, "tsv")
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out), delimiter="\t"))
    head, body = rows[0], [r for r in rows if r[0] in {"clean", "attack", "ensemble", "curve"}]
    assert {len(row) for row in body} == {len(head)}
    found = {(r[0], r[1], int(r[2])): dict(zip(head, r, strict=True)) for r in body}
    for result in report.results.budgets:
        for row in result.attacks:
            line = found["attack", row.name, result.budget]
            assert line["robust %"] == f"{100 * row.robust.share:.1f}"
            assert (int(line["broken"]), int(line["broken by it alone"])) == (row.broken, row.only)
        for row in result.ensembles:
            line = found["ensemble", row.name, result.budget]
            assert line["high %"] == f"{100 * row.robust.high:.1f}"
    kinds = {row[0] for row in rows}
    assert {"identity", "subject", "flag", "not tested", "note"} <= kinds


def test_auto_is_plain_where_nobody_watches(capsys):
    show_report(make_report(), ReportFormat.AUTO)
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    assert "targeted attacks" in plain  # every caveat: nobody scrolls in a file
    assert "\t" not in plain
    show_report(make_report(), "rich")
    assert "targeted attacks" not in capsys.readouterr().out


@pytest.mark.parametrize("width", [160, 100])
def test_the_answer_comes_last_and_fits_one_screen(width):
    attacks = tuple(f"attack-{number}" for number in range(7))
    report = make_report(Recipe(attacks=attacks, budgets=(20,), flags=(FLAG, FLAG)))
    lines = drawn(report, width, where="runs/x/report.html").splitlines()
    assert len(lines) <= 28  # leaves the verdict of a gate room on a screen of 30
    assert lines[-1] == "all of it: runs/x/report.html"
    assert "far from converged" in lines[-2]
    assert lines[-2].count("not-converged") == 1
    assert lines[-3].startswith("worst-case")
    assert sum("not-converged" in line for line in lines) == 1


def test_the_answer_is_coloured():
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="truecolor")
    draw_report(make_report(Recipe(breaks=lambda image, attack, budget: True)), console)
    worst = next(line for line in console.file.getvalue().splitlines() if "worst-case" in line)
    assert "\x1b[1;31m" in worst

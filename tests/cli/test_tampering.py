"""A run whose files were edited after it ended: nobody reports, gates or goes on with it."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from robust0.auditing import chain, proof
from robust0.auditing.chain import LINK
from robust0.cli.app import run
from tests.cli.test_hostile import RESUME, ground, place, refused

assert ground  # fixtures of this module too
assert place
RUN = Path("run")
COMMANDS = {
    "report": ["report", "run"],
    "gate": ["gate", "run", "--fail-under", "clean=1%"],
    "resume": list(RESUME),
}


def lines():
    return (RUN / "verdicts.jsonl").read_text().splitlines()


def write_lines(texts):
    (RUN / "verdicts.jsonl").write_text("".join(f"{text}\n" for text in texts))


def first_hit(records):
    return next(n for n, record in enumerate(records) if record.get("attack") == "sparse-rs"
                and record["fooled"])  # fmt: skip


def spare_a_hit():
    records = [json.loads(line) for line in lines()]
    hit = records[first_hit(records)]
    hit |= {"fooled": False, "prediction": hit["label"], "margin": 0.5}
    write_lines(json.dumps(record) for record in records)


def lose_a_verdict():
    records = lines()
    del records[3]
    write_lines(records)


def swap_verdicts():
    records = lines()
    write_lines([records[1], records[0], *records[2:]])


def invent_a_verdict():
    records = lines()
    made = json.loads(records[0]) | {"image": 999}
    write_lines([*records, json.dumps(made)])


def break_the_seal():
    write_lines(lines()[:-1])


def drop_the_links():
    write_lines(json.dumps({k: v for k, v in json.loads(t).items() if k != LINK}) for t in lines())


def edit(name, change):
    document = json.loads((RUN / name).read_text())
    change(document)
    (RUN / name).write_text(json.dumps(document))


def claim_effort():
    edit("run.json", lambda run: run["facts"]["settings"].update(effort="paper"))


def redefine_an_ensemble():
    edit("run.json", lambda run: run["facts"]["ensembles"].update(saa=["sparse-rs"]))


def drop_an_attack():
    edit("run.json", lambda run: run["facts"].update(attacks=run["facts"]["attacks"][:0]))


def change_flags():
    flag = {"name": "probabilities", "fatal": False, "message": "never mind"}
    (RUN / "checks.json").write_text(json.dumps({"flags": [flag]}))


def lose_checks():
    (RUN / "checks.json").unlink()


def move_an_attempt():
    path = RUN / "attempts.safetensors"
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        notes = file.metadata()
    tensors = load_file(path)
    tensors["values"] = 1 - tensors["values"]
    save_file(tensors, path, metadata=notes)


EDITS = [
    spare_a_hit, lose_a_verdict, swap_verdicts, invent_a_verdict, drop_the_links, claim_effort,
    redefine_an_ensemble, drop_an_attack, change_flags, lose_checks, move_an_attempt,
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_an_untouched_run_is_taken(command, place):
    assert run(COMMANDS[command]) == 0


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("change", EDITS, ids=lambda change: change.__name__)
def test_edits_are_seen(change, command, place, capsys):
    change()
    assert run(COMMANDS[command]) == 2
    assert "run" in refused(capsys)


@pytest.mark.parametrize("command", ["report", "gate"])
def test_a_run_without_its_seal_is_not_finished(command, place, capsys):
    break_the_seal()
    assert run(COMMANDS[command]) == 2
    assert "not finished" in refused(capsys)


def test_resuming_seals_it_again(place):
    break_the_seal()
    # As after a crash: the shards are still there.
    (RUN / "parts").mkdir()
    note = next(json.loads(line)["shard"] for line in lines() if "shard" in json.loads(line))
    (RUN / "attempts.safetensors").rename(RUN / "parts" / note["file"])
    assert run(COMMANDS["resume"]) == 2, "merged attempts are not the shard they came from"


@pytest.mark.parametrize("key", ["flags", "clean"])
def test_an_edited_report_decides_nothing(key, place, capsys):
    edit("report.json", lambda report: report["results"].update(
        flags=[]) if key == "flags" else report["results"]["clean"].update(count=39))  # fmt: skip
    assert run(COMMANDS["gate"]) == 2
    assert "results in report.json" in refused(capsys)
    assert run(COMMANDS["report"]) == 0, "made anew from the verdicts"
    assert run(COMMANDS["gate"]) == 0


# -- the hits once more ------------------------------------------------------------------------

RECHECK = ["audit", "--factory", "hostile_factory:make", "--recheck", "run"]


def test_a_recheck_says_which_hits_hold(place, capsys):
    assert run([*RECHECK, "--output-format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    verdicts = [json.loads(line) for line in lines()]
    hits = sum(v.get("attack") == "sparse-rs" and v["fooled"] for v in verdicts)
    assert hits > 5
    assert {row["attack"]: (row["hits"], row["hold"], row["lost"]) for row in rows} == {
        "sparse-rs": (hits, hits, 0)
    }


def test_hits_that_never_were_do_not_hold(place, capsys):
    """A whole new chain can be made; the model still says otherwise."""
    records = [json.loads(line) for line in lines()]
    for record in records:
        if record.get("attack") == "sparse-rs" and not record["fooled"]:
            record |= {"fooled": True, "prediction": (record["label"] + 1) % 3, "margin": -0.5}
            record |= {"needed": 4}
    write_lines([])
    linked = chain.chain_of(RUN, RUN / "verdicts.jsonl")
    own = [{k: v for k, v in r.items() if k != LINK} for r in records if "seal" not in r]
    write_lines(linked.line(record) for record in own)
    proof.seal(RUN)
    assert run(RECHECK) == 4
    assert "do not hold on its model" in refused(capsys)


def test_a_recheck_takes_no_settings_and_no_code(place, capsys):
    assert run([*RECHECK, "--eps", "4"]) == 2
    assert "takes no settings" in refused(capsys)
    assert run(["audit", "--recheck", "run"]) == 2
    assert "wants to run the factory hostile_factory:make" in refused(capsys)

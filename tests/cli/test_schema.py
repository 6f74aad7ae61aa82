import json

import pytest
import typer
from typer.testing import CliRunner

from robust0.auditing.rundata import read_run
from robust0.cli.schema import schema
from robust0.gate import baseline as baselines
from tests.auditing.factory_report import make_run

app = typer.Typer()
app.command()(schema)


def shown(*arguments):
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def check(value, node, root):
    """The parts of JSON schema that ours use: enough to see that a document fits."""
    if "$ref" in node:
        node = root["$defs"][node["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in node:
        fits = [option for option in node["anyOf"] if right_type(value, option)]
        assert fits, (value, node)
        return check(value, fits[0], root) if "$ref" in fits[0] else None
    assert right_type(value, node), (value, node)
    if "const" in node:
        assert value == node["const"]
    if isinstance(value, dict) and "properties" in node:
        assert set(node.get("required", ())) <= set(value)
        assert node["additionalProperties"] is False
        assert set(value) <= set(node["properties"])
        for name, item in value.items():
            check(item, node["properties"][name], root)
    if isinstance(value, list) and "items" in node:
        for item in value:
            check(item, node["items"], root)
    return None


def right_type(value, node):
    kinds = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    return "type" not in node or isinstance(value, kinds[node["type"]])


def test_documents_fit_their_schemas(tmp_path):
    folder = make_run(tmp_path / "run")
    baselines.write(tmp_path / "b.json", baselines.of_run(read_run(folder), attempts=3))
    line = (folder / "verdicts.jsonl").read_text().splitlines()[0]
    documents = {
        "report": json.loads((folder / "report.json").read_text()),
        "verdict": json.loads(line),
        "baseline": json.loads((tmp_path / "b.json").read_text()),
    }
    for name, document in documents.items():
        root = shown(name)
        check(document, root, root)
        broken = {**document, "surprise": 1}
        with pytest.raises(AssertionError):
            check(broken, root, root)


def test_the_report_is_the_default_and_has_a_version():
    assert shown() == shown("report")
    assert shown("report")["properties"]["schema"]["const"] == 2
    assert shown("baseline")["properties"]["schema"]["const"] == 2


def test_other_names_are_refused():
    assert CliRunner().invoke(app, ["nothing"]).exit_code == 2

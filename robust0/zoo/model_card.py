"""README.md of a published model: the hub's metadata, then what people want to know. No torch.

The metadata are those of the hub's model cards: ``model-index`` holds every result with the data,
the budget, the number of images and the effort behind it.
"""

from typing import Any

from robust0.architectures import own
from robust0.units import counted
from robust0.zoo.cards import Card
from robust0.zoo.scores import Score

# Names of data on the hub; other data keep their own.
_DATASETS = {
    "cifar10": "uoft-cs/cifar10",
    "sample": "uoft-cs/cifar10",  # its first 1,000 test images
    "cifar100": "uoft-cs/cifar100",
}
# The commonest of the licences that the hub knows by name.
_LICENCES = {
    *("apache-2.0", "mit", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0"),
    *("cc-by-nc-sa-4.0", "bsd-2-clause", "bsd-3-clause", "gpl-3.0", "lgpl-3.0", "agpl-3.0"),
    *("mpl-2.0", "unlicense", "openrail"),
}
_NAMES = {"saa": "sAA", "worst-case": "worst case"}
_TEXT = """\
# {card.title}

`{card.architecture}`, trained on {card.dataset} with {card.method} ({card.epochs} epochs), audited
against sparse (l0) attacks with robust0 {version}.

## Results

| accuracy | changed | images | effort | % | 95 % interval |
|---|---|---|---|---|---|
{table}

Accuracies under attack are upper bounds: a longer search can only lower them.{proof} The whole
report is in `{card.report}`, verdicts per image are in `{card.verdicts}`.

## Use

```python
import robust0

network = robust0.load("hf-hub:{repository}")  # takes images (B, C, H, W) in [0, 1]
```

With timm alone you normalise the images yourself, with `mean` and `std` of `config.json`:

```python
import timm{imports}

network = timm.create_model("hf-hub:{repository}", pretrained=True)
```
{inner}
## Check it

```bash
robust0 zoo verify hf-hub:{repository}
```

The model was trained by:

```bash
{card.training_command}
```

sha256 of the weights: `{card.sha256}`. Licence: {card.licence}.
"""
_PROOF = """ Certified
accuracies are lower bounds: no change of so many pixels, to any colours, alters the answer of the
classifier on these images."""
_INNER = """
timm loads the network inside the classifier, which sees parts of an image. robust0 loads the whole
classifier, and only that one is certified.
"""


def model_card(card: Card, repository: str) -> str:
    """The text of README.md in the repository OWNER/REPO."""
    return f"---\n{_metadata(card)}\n---\n\n{_body(card, repository)}"


def _metadata(card: Card) -> str:
    from huggingface_hub import ModelCardData

    licence = card.licence.lower()
    tags = ["image-classification", "timm", "robust0", "adversarial-robustness", "l0"]
    known = licence in _LICENCES
    data = ModelCardData(
        license=licence if known else "other",
        license_name=None if known else card.licence,
        library_name="timm",
        pipeline_tag="image-classification",
        tags=tags + (["certified-robustness"] if card.certificate else []),
        datasets=[_DATASETS[card.dataset]] if card.dataset in _DATASETS else None,
        metrics=["accuracy"],
        model_name=card.id,
        eval_results=_results(card),
    )
    return str(data.to_yaml(line_break="\n")).strip()


def _results(card: Card) -> list[Any]:
    """One result per number, as the hub's EvalResult."""
    from huggingface_hub import EvalResult

    def result(name: str, score: Score, data: tuple[str, str], facts: dict[str, Any]) -> EvalResult:
        return EvalResult(
            task_type="image-classification",
            task_name="Image Classification",
            dataset_type=_DATASETS.get(data[0], data[0]),
            dataset_name=data[0],
            dataset_split=data[1],
            metric_type="accuracy",
            metric_name=f"{name} (%)",
            metric_value=score.percent,
            metric_args={**facts, "low": score.low, "high": score.high},
        )

    audit, proof = card.audit, card.certificate
    data, images = (audit.dataset, audit.split), f"{audit.images:,} images"
    found = [result(f"clean accuracy, {images}", audit.clean, data, {"images": audit.images})]
    for row in audit.robust:
        if row.name in _NAMES:
            changed = counted(row.budget, audit.unit)
            facts = {"budget": row.budget, "unit": audit.unit, "effort": audit.effort}
            facts |= {"images": audit.images, "bound": "upper"}
            name = f"accuracy under attack ({_NAMES[row.name]}), {changed} changed"
            name += f", effort {audit.effort}, {images}"
            found.append(result(name, row, data, facts))
    if proof is not None:
        data, images = (proof.dataset, proof.split), f"{proof.images:,} images"
        found.append(
            result(f"clean accuracy, {images}", proof.clean, data, {"images": proof.images})
        )
        for row in proof.headline_scores:
            facts = {"budget": row.budget, "unit": "pixel", "certificate": proof.kind}
            facts |= {"images": proof.images, "bound": "lower"}
            changed = counted(row.budget, "pixel")
            name = f"certified accuracy, {changed} changed, {proof.kind}, {images}"
            found.append(result(name, row, data, facts))
    return found


def _body(card: Card, repository: str) -> str:
    ours = card.architecture.partition(".")[0] in own()
    return _TEXT.format(
        card=card,
        repository=repository,
        version=card.audit.versions.get("robust0", ""),
        table=_table(card),
        proof="" if card.certificate is None else _PROOF,
        imports="\nimport robust0.models  # tells timm about the architecture" if ours else "",
        inner="" if card.certificate is None else _INNER,
    )


def _table(card: Card) -> str:
    audit, proof = card.audit, card.certificate
    rows = [("clean", "-", audit.images, "-", audit.clean)]
    rows += [
        (name, counted(row.budget, audit.unit), audit.images, audit.effort, row)
        for row in audit.robust
        if (name := _NAMES.get(row.name))
    ]
    if proof is not None:
        rows.append(("clean", "-", proof.images, "-", proof.clean))
        rows += [
            (f"certified ({proof.kind})", counted(row.budget, "pixel"), proof.images, "proof", row)
            for row in proof.headline_scores
        ]
    cells = (
        (name, changed, f"{images:,}", effort, f"{row.percent}", f"{row.low} - {row.high}")
        for name, changed, images, effort, row in rows
    )
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)

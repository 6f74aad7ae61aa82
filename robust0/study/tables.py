"""The numbers of a result as rows: for the terminal, for the page."""

from typing import Any

from robust0.study.folder import Json

Rows = list[dict[str, Any]]


def rows_of(document: Json) -> Rows:
    """One row per model and attack, with equal keys."""
    return [_ROWS[document["part"]](result) for result in document["results"]]


def title_of(part: str) -> str:
    """What a part is called above its table."""
    return _TITLES[part]


def _spectrum(result: Json) -> dict[str, Any]:
    values = result["values"]
    found = {f"{place + 1}": _significant(value) for place, value in enumerate(values)}
    missing = {f"{place + 1}": "-" for place in range(len(values), result["asked"])}
    head = {"model": result["model"], "attack": result["attack"], "loss": round(result["loss"], 3)}
    return {**head, **found, **missing, "products": result["products"]}


def _landscape(result: Json) -> dict[str, Any]:
    return {
        "model": result["model"],
        "attack": result["attack"],
        "loss in the middle": round(result["middle"], 3),
        "lowest": round(result["lowest"], 3),
        "highest": round(result["highest"], 3),
        "steepest slope": _significant(result["steepest"]),
    }


def _overlap(result: Json) -> dict[str, Any]:
    mean, chance = result["mean"], result["chance"]
    return {
        "model": result["model"],
        "first": result["first"],
        "second": result["second"],
        "images": result["images"],
        "l0 distance": round(mean["distance"], 3),
        "by chance": round(chance["distance"], 3),
        "location distance": round(mean["location"], 3),
        "by chance ": round(chance["location"], 3),
        "overlap": _percent(mean["overlap"]),
        "by chance  ": _percent(chance["overlap"]),
        "lift": round(result["lift"], 2),
    }


def _interpolate(result: Json) -> dict[str, Any]:
    pairs = zip(result["shares"], result["accuracy"], strict=True)
    audit = result.get("audit") or {}
    return {
        "model": result["model"],
        "attack": result["attack"],
        **{f"{share:g}": _percent(value) for share, value in pairs},
        "sAA": _percent(audit.get("saa")),
        "worst case": _percent(audit.get("worst-case")),
        "audit": f"{audit['effort']}, {audit['images']} images" if audit else "-",
    }


def _gradients(result: Json) -> dict[str, Any]:
    batch, image = result["batch"]["mean"], (result["image"] or {}).get("mean", {})
    return {
        "model": result["model"],
        "epoch": result.get("epoch"),
        "first": result["first"],
        "second": result["second"],
        f"distance, {result['batch_size']} images": _significant(batch["distance"]),
        "norms": f"{batch['first']:.3g}, {batch['second']:.3g}",
        "cosine": round(batch["cosine"], 3),
        "distance, one image": _significant(image.get("distance")),
        "norms ": f"{image['first']:.3g}, {image['second']:.3g}" if image else "-",
    }


def _training(result: Json) -> dict[str, Any]:
    moment = result["moment"]
    norm = result["gradient_norm"]
    return {
        "run": result["model"],
        "training": result["title"],
        **result["settings"],
        "best probe": _percent(result["best_probe"]),
        "last probe": _percent(result["last_probe"]),
        "overfitting": "never" if moment is None else f"epoch {moment['epoch']}",
        "median gradient norm": _significant(norm["median"]),
        "highest": _significant(norm["highest"]),
    }


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _significant(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


_ROWS = {
    "spectrum": _spectrum, "landscape": _landscape, "overlap": _overlap,
    "interpolate": _interpolate, "gradients": _gradients, "training": _training,
}  # fmt: skip
_TITLES = {
    "spectrum": "Largest eigenvalues of the Hessian of the loss in the weights",
    "landscape": "The loss around the weights",
    "overlap": "Where two attacks change an image",
    "interpolate": "Accuracy on the way from the clean image to the perturbed one",
    "gradients": "Weight gradients under two attacks, l2",
    "training": "Training runs",
}

"""A run's model as a file for use elsewhere, with a model card beside it."""

import hashlib
import io
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.schema import to_dict
from fl_platform.errors import UserError, unknown_name
from fl_platform.federation.trained import Trained, Which, read_trained
from fl_platform.models.registry import example_inputs
from fl_platform.runs import metrics
from fl_platform.runs.directory import check_writable, json_text
from fl_platform.runs.reader import read_directory
from fl_platform.runs.writing import write_atomically, writing


def state_dict_bytes(trained: Trained) -> bytes:
    """The network's own state dict: tensors by name, which ``torch.load(..., weights_only=True)`` reads."""
    written = io.BytesIO()
    torch.save(dict(trained.classifier().network.state_dict()), written)
    return written.getvalue()


def torchscript_bytes(trained: Trained) -> bytes:
    """TorchScript of raw features -> logits, for any batch size."""
    classifier, written = trained.classifier(), io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        for category in (DeprecationWarning, FutureWarning):  # of torch.jit as a whole: torch 2.13, torch 2.15
            warnings.simplefilter("ignore", category)
        classifier.network = torch.jit.trace(classifier.network, example(trained))  # type: ignore[no-untyped-call]
        torch.jit.save(torch.jit.script(classifier), written)
    return written.getvalue()


def exported_program_bytes(trained: Trained) -> bytes:
    """An ExportedProgram of raw features -> logits; images of floating point in [0, 1], for any batch size."""
    written = io.BytesIO()
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(trained.classifier(), (example(trained),), dynamic_shapes=(batch,))
    torch.export.save(program, written)
    return written.getvalue()


FORMATS: dict[str, Callable[[Trained], bytes]] = {
    "state_dict": state_dict_bytes,
    "torchscript": torchscript_bytes,
    "exported_program": exported_program_bytes,
}
_INPUT = {
    ("images", "state_dict"): "images [B, C, H, W] in [0, 1], minus mean, divided by std",
    ("images", "torchscript"): "raw images [B, C, H, W]: uint8 in 0..255, or floating point in [0, 1]",
    ("images", "exported_program"): "raw images [B, C, H, W] of floating point in [0, 1]",
    ("numbers", "state_dict"): "numbers [B, ...], minus mean, divided by std",
    ("numbers", "torchscript"): "raw numbers [B, ...] of any dtype",
    ("numbers", "exported_program"): "raw numbers [B, ...] of floating point",
    ("tokens", "state_dict"): "token ids [B, T] of dtype int64",
    ("tokens", "torchscript"): "token ids [B, T] of any integer dtype",
    ("tokens", "exported_program"): "token ids [B, T] of dtype int64",
}
"""What a file's model takes, by what the features of its data set are and the format."""


def example(trained: Trained) -> torch.Tensor:
    """Two inputs to trace the network with."""
    return example_inputs(trained.dataset.shape, trained.dataset.features, trained.params.dtype)


def export(
    run: Path, to: Path, which: Which = "last", form: str = "state_dict", code: Collection[str] = ()
) -> list[Path]:
    """Write the model of a run directory to a file, and a card beside it; returns both paths.

    ``form`` is a key of ``FORMATS``, and ``code`` is that of ``load_model``. Raises UserError where the model was not
    kept, names other code, cannot be written as that, or the file cannot be written.
    """
    if form not in FORMATS:
        raise unknown_name("--format", form, FORMATS)
    check_writable(to.parent, f"--to {to}")
    if to.is_dir():
        raise UserError(f"--to {to} is a directory; give a file")
    trained = read_trained(run, which, code=code)
    try:
        content = FORMATS[form](trained)
    except (RuntimeError, ValueError, TypeError) as error:  # a forward that torch cannot follow
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"--format {form}: model.name={trained.config.model.name} cannot be written: {reason}"
        ) from None
    card_file = to.with_name(f"{to.name}.json")
    with writing(f"--to {to}"):
        write_atomically(to, content)
        write_atomically(card_file, json_text(card(run, trained, which, form, content), indent=1) + "\n")
    return [to, card_file]


def card(run: Path, trained: Trained, which: Which, form: str, content: bytes) -> dict[str, Any]:
    """What a reader of the file must know: where the model comes from, how good it is, and what it takes."""
    config, dataset = trained.config, trained.dataset
    method = ALGORITHMS.get(config.algorithm["name"])
    mean, std = dataset.statistics()
    return {
        "format": form,
        "sha256": hashlib.sha256(content).hexdigest(),
        "input": _INPUT[dataset.features, form],
        "output": f"logits [B, {dataset.num_classes}]",
        "dtype": config.precision,
        "data": {
            "name": dataset.name,
            "label": dataset.label,
            "classes": dataset.num_classes,
            "shape": dataset.shape,
            "mean": mean,
            "std": std,
        },
        "method": {"name": method.name, "label": method.label},
        "model": {"name": config.model.name, "parameters": trained.network.parameters.dim},
        "run": run.name,
        "which": which,
        "round": trained.round,
        "accuracy": accuracy_at(run, trained.round),
        "evaluated_on": "validation" if config.data.validation_fraction else "test",
        "configuration": to_dict(config),
    }


def accuracy_at(run: Path, round: int) -> float | None:
    """The accuracy that a run logged for a round; None where it was not evaluated."""
    history = read_directory(run).history
    if metrics.TEST_ACCURACY not in history.column_names:
        return None
    rows = dict(zip(history[metrics.ROUND].to_pylist(), history[metrics.TEST_ACCURACY].to_pylist(), strict=True))
    return rows.get(round)

"""Figures of an evaluation beyond accuracy and loss, from all logits of the test set.

macro_f1: the mean over classes of F1 (classes that neither occur nor are predicted are left out).
balanced_accuracy: the mean over classes of their accuracy (recall); classes without samples are left out.
perplexity: exp of the mean cross-entropy. calibration_error: the expected calibration error of the largest
probability in 15 equal bins (Guo et al. 2017). F1 and calibration are torchmetrics'.
"""

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

BINS = 15


def further_metrics(
    names: Sequence[str], logits: Tensor, labels: Tensor, loss: float, correct: np.ndarray, total: np.ndarray
) -> dict[str, float]:
    """The named metrics of logits (n, K), their mean loss and their counts per class."""
    found = {}
    for name in names:
        if name == "perplexity":
            found[name] = math.exp(loss) if loss < 700 else math.inf
        elif name == "balanced_accuracy":
            found[name] = float((correct[total > 0] / total[total > 0]).mean())
        else:
            found[name] = of_torchmetrics(name, logits, labels)
    return found


def of_torchmetrics(name: str, logits: Tensor, labels: Tensor) -> float:
    """A metric that torchmetrics computes; it is imported when one is asked for."""
    from torchmetrics.functional import classification

    if name == "macro_f1":
        return float(classification.multiclass_f1_score(logits, labels, logits.shape[1], average="macro"))
    probabilities = logits.double().softmax(1)
    return float(classification.multiclass_calibration_error(probabilities, labels, logits.shape[1], n_bins=BINS))

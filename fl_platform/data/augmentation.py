"""Random crops and flips of images, for many workers at once."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from fl_platform import noise

_TOP, _LEFT, _FLIP = range(3)  # streams of noise


def crop_and_flip(pixels: Tensor, keys: Tensor, count: int, padding: int, *, flip: bool) -> Tensor:
    """Crop and flip in one gather: each output pixel (y, x) reads (top + y, left + x or its mirror image).

    ``pixels`` [n, C, H, W] are ``count`` images for each of ``keys``, which alone decide what is drawn.
    """
    height, width = pixels.shape[-2:]
    rows = _draw(keys, count, 2 * padding + 1, _TOP) + torch.arange(height, device=keys.device)
    columns = torch.arange(width, device=keys.device).expand(len(pixels), -1)
    if flip:
        columns = torch.where(_draw(keys, count, 2, _FLIP) == 1, columns.flip(-1), columns)
    columns = _draw(keys, count, 2 * padding + 1, _LEFT) + columns
    places = rows.unsqueeze(-1) * (width + 2 * padding) + columns.unsqueeze(-2)
    padded = pad(pixels, [padding] * 4)  # black before normalising, as in the paper's code
    places = places.view(len(pixels), 1, -1).expand(-1, pixels.shape[1], -1)
    return padded.flatten(2).gather(2, places).view_as(pixels)


def _draw(keys: Tensor, count: int, below: int, stream: int) -> Tensor:
    """One integer in [0, below) per sample, as a column."""
    return noise.integers(keys, count, below, stream).view(-1, 1)

"""An embedding, a GRU over the sequence and one linear layer: a small network for next-character prediction.

McMahan et al. (2017) and LEAF use two LSTM layers of 256 on an embedding of 8; this is a quarter of the arithmetic.
"""

from collections import OrderedDict

from torch import Tensor, nn

from fl_platform.models.layers import Features
from fl_platform.models.recurrent import GRU
from fl_platform.models.registry import Shape, architecture

EMBEDDING = 16


class LastState(nn.Module):
    """A GRU's state after the last token: (B, T, inputs) -> (B, H)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gru = GRU(inputs, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        last: Tensor = self.gru(x)[1][-1]
        return last


@architecture(
    "char_gru",
    "embedding of 16, GRU of 128 (model.width), linear; for token ids",
    has_width=True,
    takes=("tokens",),
)
def char_gru(shape: Shape, num_classes: int, *, norm: str, width: int | None, num_tokens: int) -> nn.Sequential:
    """An embedding of characters, one GRU layer and a linear layer on its last state."""
    hidden = width or 128
    return nn.Sequential(
        OrderedDict(
            embedding=nn.Embedding(num_tokens, EMBEDDING),
            recurrent=nn.Sequential(LastState(EMBEDDING, hidden), Features()),
            output=nn.Linear(hidden, num_classes),
        )
    )

"""GRU and LSTM layers that both engines can run.

One worker's layer is PyTorch's own. torch.vmap cannot run that for a stack of workers, so a stack runs the layers'
equations one time step after another. Both read their weights where ``Binding`` puts them; PyTorch's layers read a
second list of their own.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor

State = tuple[Tensor, ...]  # of one time step: (h,) or (h, c), each (B, H)
Step = Callable[[Tensor, State, Tensor, Tensor | None], State]


class GRU(nn.GRU):
    """nn.GRU of a network that workers train."""

    def forward(self, x: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return what nn.GRU does: the outputs of the last layer over time, and every layer's last state."""
        states = None if hx is None else (hx,)
        outputs, last = run_layers(self, x, states, gru_step, torch.gru)
        return outputs, last[0]


class LSTM(nn.LSTM):
    """nn.LSTM of a network that workers train."""

    def forward(  # type: ignore[override]
        self, x: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return what nn.LSTM does: the outputs of the last layer over time, and every layer's last (h, c)."""
        outputs, last = run_layers(self, x, hx, lstm_step, torch.lstm)
        return outputs, (last[0], last[1])


def gru_step(from_input: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """h' = (1 - z) n + z h with r, z = sigmoid(W x + U h), n = tanh(W_n x + r (U_n h)); biases are left out here."""
    (hidden,) = state
    r_input, z_input, n_input = from_input.chunk(3, -1)
    r_hidden, z_hidden, n_hidden = F.linear(hidden, weight, bias).chunk(3, -1)
    update = torch.sigmoid(z_input + z_hidden)
    candidate = torch.tanh(n_input + torch.sigmoid(r_input + r_hidden) * n_hidden)
    return (candidate + update * (hidden - candidate),)


def lstm_step(from_input: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    """c' = f c + i g and h' = o tanh(c') with i, f, o = sigmoid(W x + U h), g = tanh(W_g x + U_g h)."""
    hidden, cell = state
    enter, forget, candidate, leave = (from_input + F.linear(hidden, weight, bias)).chunk(4, -1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


def run_layers(
    layer: nn.RNNBase, x: Tensor, states: State | None, step: Step, fused: Callable[..., Any]
) -> tuple[Tensor, State]:
    """Run a recurrent layer on a batch; returns outputs, and the last states of every layer and direction."""
    weights: list[Any] = [layer._parameters[name] for name in layer._flat_weights_names]
    batch = x.shape[0 if layer.batch_first else 1]
    count = 2 if isinstance(layer, nn.LSTM) else 1
    if states is None:
        directions = 2 if layer.bidirectional else 1
        states = (x.new_zeros(directions * layer.num_layers, batch, layer.hidden_size),) * count
    if is_batchedtensor(x) or is_batchedtensor(weights[0]):
        return _run_steps(layer, x, states, step, weights)
    given = states[0] if count == 1 else states
    outputs, *last = fused(
        x, given, weights, layer.bias, layer.num_layers, 0.0, layer.training, layer.bidirectional, layer.batch_first
    )
    return outputs, tuple(last)


def _run_steps(layer: nn.RNNBase, x: Tensor, states: State, step: Step, weights: list[Tensor]) -> tuple[Tensor, State]:
    """The layer's equations, one time step after another; the second direction reads the sequence from its end."""
    time = 1 if layer.batch_first else 0
    directions = 2 if layer.bidirectional else 1
    per_direction = 4 if layer.bias else 2
    finals: list[State] = []
    for number in range(layer.num_layers):
        read = []
        for backwards in range(directions):
            place = number * directions + backwards
            own = weights[place * per_direction : (place + 1) * per_direction]
            of_input, of_hidden = (own[2], own[3]) if layer.bias else (None, None)
            state: State = tuple(kind[place] for kind in states)
            outputs = []
            inputs = F.linear(x, own[0], of_input).unbind(time)
            for from_input in reversed(inputs) if backwards else inputs:
                state = step(from_input, state, own[1], of_hidden)
                outputs.append(state[0])
            read.append(torch.stack(outputs[::-1] if backwards else outputs, time))
            finals.append(state)
        x = torch.cat(read, -1) if layer.bidirectional else read[0]
    return x, tuple(torch.stack(kind) for kind in zip(*finals, strict=True))


def adopted(child: nn.RNNBase, name: str) -> nn.RNNBase:
    """Return a user's recurrent layer as one of ours, with its values; ValueError for one that workers cannot train."""
    if type(child) in (GRU, LSTM):
        return child
    kinds: dict[type[nn.RNNBase], type[GRU] | type[LSTM]] = {nn.GRU: GRU, nn.LSTM: LSTM}
    kind = kinds.get(type(child))
    proj_size = getattr(child, "proj_size", 0)
    if kind is None or child.dropout or proj_size:
        raise ValueError(
            f"layer '{name}' is a {type(child).__name__} with dropout={child.dropout:g}, proj_size={proj_size}; "
            "of recurrent layers nn.GRU and nn.LSTM are known, without dropout and projection"
        )
    ours = kind(
        child.input_size,
        child.hidden_size,
        child.num_layers,
        bias=child.bias,
        batch_first=child.batch_first,
        bidirectional=child.bidirectional,
    )
    ours.load_state_dict(child.state_dict())
    return ours

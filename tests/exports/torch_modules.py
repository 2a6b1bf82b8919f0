"""Small torch modules with the patterns that exporters are asked for most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from tests.exports.torch_export import Exported


class Of(nn.Module):
    """A function as a module; ``parts`` are submodules that it may call by name."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleDict(parts)

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(self.parts, *tensors) if len(self.parts) else self.function(*tensors)


def _rows(size: int, *shape: int) -> Tensor:
    return torch.randn(size, *shape)


def _module(
    name: str, function: Callable[..., Any], *shapes: tuple[int, ...], parts: Callable[[], dict[str, nn.Module]] = dict
) -> Exported:
    """Of inputs whose first axis is the batch."""
    return Exported(
        name,
        lambda: Of(function, **parts()),
        lambda s: tuple(_rows(s, *shape) for shape in shapes),
        [{0: "batch"}] * len(shapes),
    )


def _image(
    name: str, function: Callable[..., Any], parts: Callable[[], dict[str, nn.Module]] = dict, side: int = 8
) -> Exported:
    """Of one picture of any size: 1 by 4 channels."""

    def inputs(size: int) -> tuple[Tensor, ...]:
        return (torch.randn(1, 4, side * size, side * (size + 1)),)

    return Exported(name, lambda: Of(function, **parts()), inputs, [{2: "height", 3: "width"}])


def _masked(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(x.shape[1], device=x.device)[None, :] < (lengths[:, :1].abs() * 3).long()
    return x.masked_fill(~mask[:, :, None], 0.0).sum(1)


def _windows(x: Tensor) -> Tensor:
    b, c, h, w = x.shape
    x = x.view(b, c, h // 4, 4, w // 4, 4)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c).softmax(-1)


def _attention(x: Tensor, y: Tensor) -> Tensor:
    q, k = (t.view(t.shape[0], t.shape[1], 2, -1).transpose(1, 2) for t in (x, y))
    return f.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2)


def _positions(x: Tensor) -> Tensor:
    at = torch.arange(x.shape[1], device=x.device).unsqueeze(0).expand(x.shape[0], -1)
    return x + at.unsqueeze(-1).to(x.dtype) / 10


def _causal(x: Tensor) -> Tensor:
    n = x.shape[1]
    scores = x @ x.transpose(1, 2)
    mask = torch.triu(torch.ones(n, n, dtype=torch.bool, device=x.device), 1)
    return scores.masked_fill(mask, float("-inf")).softmax(-1) @ x


def _sequence(
    name: str, function: Callable[..., Any], parts: Callable[[], dict[str, nn.Module]] = dict, exporter: str = ""
) -> Exported:
    """Of rows of any number and length, 8 wide."""

    def inputs(size: int) -> tuple[Tensor, ...]:
        return (torch.randn(size, 3 * size + 1, 8),)

    return Exported(name, lambda: Of(function, **parts()), inputs, [{0: "batch", 1: "length"}], exporter=exporter)


def _recurrent(kind: type[nn.Module]) -> Callable[[], dict[str, nn.Module]]:
    return lambda: {"layer": kind(8, 6, batch_first=True, bidirectional=True)}


MODULES: tuple[Exported, ...] = (
    _module("mlp", lambda m, x: m["b"](f.gelu(m["a"](x))), (8,), parts=lambda: {"a": nn.Linear(8, 16), "b": nn.Linear(16, 4)}),
    _module("add_broadcast", lambda x, y: x + y[:, :1], (5,), (5,)),
    _module("expand_as", lambda x, y: x[:, :1].expand_as(y) * y, (5,), (5,)),
    _module("zeros_like", lambda x, y: torch.zeros_like(x + y) + y, (5,), (5,)),
    _module("where", lambda x, y: torch.where(x > 0, x, y), (3, 4), (3, 4)),
    _module("einsum", lambda x, y: torch.einsum("bij,bkj->bik", x, y), (3, 4), (5, 4)),
    _module("chunk", lambda x: torch.cat(x.chunk(3, 1)[::-1], 1), (6, 2)),
    _module("roll", lambda x: torch.roll(x, (1, -2), (1, 2)), (5, 6)),
    _module("flip", lambda x: x.flip(1), (5, 2)),
    _module("topk", lambda x: x.topk(2, -1)[0], (7,)),
    _module("norms", lambda m, x: m["g"](m["l"](x)), (4, 8), parts=lambda: {"l": nn.LayerNorm(8), "g": nn.GroupNorm(2, 4)}),
    _module("index_put", lambda x: x.index_put((torch.tensor([0]),), torch.zeros(5)), (5,)),
    _module("slice_assign", lambda x: torch.cat((x[:, 1:] * 2, x[:, :1]), 1), (5,)),
    _module("cumsum", lambda x: x.cumsum(1).clamp(-2, 2), (5,)),
    _module("std", lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5), (5,)),
    _image("conv", lambda m, x: m["n"](m["c"](x)).relu(), lambda: {"c": nn.Conv2d(4, 6, 3, 2, 1), "n": nn.BatchNorm2d(6)}),
    _image("conv_transpose", lambda m, x: m["c"](x), lambda: {"c": nn.ConvTranspose2d(4, 3, 4, 2, 1)}),
    _image("depthwise", lambda m, x: m["c"](x).sigmoid() * x, lambda: {"c": nn.Conv2d(4, 4, 5, 1, 2, groups=4)}),
    _image("interpolate", lambda x: f.interpolate(x, scale_factor=2.0, mode="bilinear")),
    _image("interpolate_to", lambda x: f.interpolate(x[:, :, ::2, ::2], size=x.shape[2:], mode="nearest")),
    _image("pixel_unshuffle", lambda x: f.pixel_shuffle(f.pixel_unshuffle(x, 2), 2)),
    _image("windows", _windows),
    _image("adaptive_pool", lambda x: f.adaptive_avg_pool2d(x, 1).flatten(1)),
    _image("pools", lambda x: f.max_pool2d(x, 3, 2, 1, ceil_mode=True) + f.avg_pool2d(x, 3, 2, 1, ceil_mode=True)),
    _image("pad_reflect", lambda x: f.pad(x, (1, 2, 3, 0), mode="reflect")),
    _image("grid", lambda x: x * torch.linspace(-1, 1, 4)[None, :, None, None] + x.new_ones(x.shape[2], 1)),
    _image("flatten_tokens", lambda x: x.flatten(2).transpose(1, 2).softmax(1)),
    _sequence("positions", _positions),
    _sequence("causal", _causal),
    _sequence("lstm", lambda m, x: m["layer"](x)[0], _recurrent(nn.LSTM)),
    _sequence("gru", lambda m, x: m["layer"](x)[0], _recurrent(nn.GRU)),
    _sequence("encoder", lambda m, x: m["e"](x), lambda: {"e": nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)}, "dynamo"),
    _sequence("pad_to_even", lambda x: f.pad(x, (0, 0, 0, x.shape[1] % 2))),
    _sequence("frames", lambda x: x[:, : x.shape[1] // 2 * 2].reshape(x.shape[0], x.shape[1] // 2, 16)),
    _sequence("shift", lambda x: x[:, 1:] - x[:, :-1]),
    _sequence("last", lambda x: torch.stack((x[:, -1], x.mean(1), x.amax(1)), 1)),
    _sequence("relative", lambda x: x @ x.transpose(1, 2) + (torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])[None])),
    Exported("lengths", lambda: Of(_masked), lambda s: (_rows(s, 4, 3), _rows(s, 2)), [{0: "batch"}] * 2),
    Exported("attention", lambda: Of(_attention), lambda s: (_rows(s, 3 + s, 8), _rows(s, 2 * s, 8)),
             [{0: "batch", 1: "queries"}, {0: "batch", 1: "keys"}]),
)  # fmt: skip

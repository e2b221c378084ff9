"""Calls of ATen ops that torch's samples do not reach and that guessing does not find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _float(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(len(shape)))


def _whole(*shape: int, below: int = 2, dtype: torch.dtype = torch.int64) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randint(0, below, shape, generator=generator).to(dtype)


def _args(*args: Any, **kwargs: Any) -> Arguments:
    return args, kwargs


def _attention() -> Arguments:
    x, eight = _float(4, 6, 8), _float(8)
    qkv = (_float(24, 8), _float(24), _float(8, 8), eight)
    return _args(x, x, x, 8, 2, *qkv)


def _encoder_layer() -> Arguments:
    eight = _float(8)
    qkv = (_float(24, 8), _float(24), _float(8, 8), eight)
    ffn = (_float(16, 8), _float(16), _float(8, 16), eight)
    norms = (eight, eight, eight, eight)
    return _args(_float(4, 6, 8), 8, 2, *qkv, True, False, 1e-5, *norms, *ffn)


def _jagged() -> list[Tensor]:
    return [torch.tensor([0, 2, 5, 6, 8])]


def _fused_adagrad(lr: Any) -> Arguments:
    lists = [[_float(4, 4), _float(6, 4)] for _ in range(3)]
    steps = [torch.tensor(1.0), torch.tensor(1.0)]
    options = {"lr": lr, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-8, "maximize": False}
    return _args(*lists, steps, **options)


X2, W2 = (4, 4, 6, 6), (8, 4, 3, 3)
X3, W3 = (2, 4, 6, 6, 6), (8, 4, 3, 3, 3)
T2, T3 = (4, 8, 3, 3), (4, 8, 3, 3, 3)

# By packet name and overload of the functional form.
HANDMADE: dict[str, Callable[[], Arguments]] = {
    "_conj_copy.default": lambda: _args(torch.complex(_float(4, 4), _float(4, 4))),
    "_convert_indices_from_csr_to_coo.default": lambda: _args(
        torch.tensor([0, 1, 3, 4]), torch.tensor([0, 1, 2, 0])
    ),
    "_convert_weight_to_int4pack_for_cpu.default": lambda: _args(
        _whole(64, 64, below=16, dtype=torch.int32), 1
    ),
    "_convolution.default": lambda: _args(
        _float(*X2), _float(*W2), _float(8), [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
        False, False, False, False,
    ),
    "_embedding_bag_dense_backward.default": lambda: _args(
        _float(2, 4), _whole(6, below=4), torch.tensor([0, 0, 0, 1, 1, 1]),
        torch.tensor([3, 3]), torch.empty(0, dtype=torch.int64), 4, False, 0, None,
    ),
    "_fused_adagrad.default": lambda: _fused_adagrad(0.1),
    "_fused_adagrad.tensor_lr": lambda: _fused_adagrad(torch.tensor(0.1)),
    "_fused_sgd.default": lambda: _args(
        [_float(4, 4)], [_float(4, 4)], [_float(4, 4)], weight_decay=0.0, momentum=0.9, lr=0.1,
        dampening=0.0, nesterov=False, maximize=False, is_first_step=False,
    ),
    "_grid_sampler_2d_cpu_fallback.default": lambda: _args(
        _float(*X2), _float(4, 5, 5, 2), 0, 0, False
    ),
    "_grid_sampler_2d_cpu_fallback_backward.default": lambda: _args(
        _float(4, 4, 5, 5), _float(*X2), _float(4, 5, 5, 2), 0, 0, False
    ),
    "_index_put_impl.default": lambda: _args(
        _float(6, 4), [torch.tensor([0, 2, 5, 1])], _float(4, 4), False, False
    ),
    "_int_mm.default": lambda: _args(
        _whole(32, 32, below=4, dtype=torch.int8), _whole(32, 32, below=4, dtype=torch.int8)
    ),
    "_is_all_true.default": lambda: _args(_whole(4, 4, dtype=torch.bool)),
    "_is_any_true.default": lambda: _args(_whole(4, 4, dtype=torch.bool)),
    "_jagged_to_padded_dense_forward.default": lambda: _args(_float(8, 4), _jagged(), [3], 0.0),
    "_masked_softmax.default": lambda: _args(
        _float(4, 2, 6, 6), _whole(4, 2, 6, 6, dtype=torch.bool), 3, 2
    ),
    "_masked_softmax_backward.default": lambda: _args(
        _float(4, 2, 6, 6), _float(4, 2, 6, 6), _whole(4, 2, 6, 6, dtype=torch.bool), 3
    ),
    "_native_multi_head_attention.default": _attention,
    "_padded_dense_to_jagged_forward.default": lambda: _args(_float(4, 3, 4), _jagged(), 8),
    "_slow_conv2d_backward.output_mask": lambda: _args(
        _float(4, 8, 4, 4), _float(*X2), _float(*W2), [3, 3], [1, 1], [0, 0], [True, False, True]
    ),
    "_slow_conv2d_forward.default": lambda: _args(
        _float(*X2), _float(*W2), [3, 3], _float(8), [1, 1], [0, 0]
    ),
    "_transform_bias_rescale_qkv.default": lambda: _args(_float(4, 6, 24), _float(24), 2),
    "_transformer_encoder_layer_fwd.default": _encoder_layer,
    "_weight_int8pack_mm.default": lambda: _args(
        _float(4, 32).bfloat16(), _whole(8, 32, below=4, dtype=torch.int8), _float(8).bfloat16()
    ),
    "conv_tbc.default": lambda: _args(_float(6, 2, 4), _float(3, 4, 8), _float(8), 0),
    "fractional_max_pool2d_backward.default": lambda: _args(
        _float(4, 4, 2, 2), _float(*X2), [2, 2], [2, 2], _whole(4, 4, 2, 2, below=36)
    ),
    "glu_backward_jvp.default": lambda: _args(
        _float(4, 6), _float(4, 3), _float(4, 6), _float(4, 3), _float(4, 6), 1
    ),
    "glu_jvp.default": lambda: _args(_float(4, 3), _float(4, 6), _float(4, 6), 1),
    "masked_scatter.default": lambda: _args(
        _float(4, 4), _whole(4, 4, dtype=torch.bool), _float(16)
    ),
    "masked_select.default": lambda: _args(_float(4, 4), _whole(4, 4, dtype=torch.bool)),
    "max_pool3d_with_indices_backward.default": lambda: _args(
        _float(2, 4, 3, 3, 3), _float(*X3), [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False,
        _whole(2, 4, 3, 3, 3, below=216),
    ),
    "mkldnn_convolution.default": lambda: _args(
        _float(*X2), _float(*W2), _float(8), [0, 0], [1, 1], [1, 1], 1
    ),
    "replication_pad1d_backward.default": lambda: _args(_float(4, 4, 8), _float(4, 4, 6), [1, 1]),
    "replication_pad3d_backward.default": lambda: _args(
        _float(2, 4, 8, 8, 8), _float(*X3), [1, 1, 1, 1, 1, 1]
    ),
    "scatter.reduce": lambda: _args(
        _float(4, 4), 0, _whole(4, 4, below=4), _float(4, 4), reduce="add"
    ),
    "scatter.value_reduce": lambda: _args(
        _float(4, 4), 0, _whole(4, 4, below=4), 2.0, reduce="multiply"
    ),
    "slow_conv3d_forward.default": lambda: _args(
        _float(*X3), _float(*W3), [3, 3, 3], _float(8), [1, 1, 1], [0, 0, 0]
    ),
    "slow_conv_dilated2d.default": lambda: _args(
        _float(*X2), _float(*W2), [3, 3], _float(8), [1, 1], [0, 0], [2, 2]
    ),
    "slow_conv_dilated3d.default": lambda: _args(
        _float(*X3), _float(*W3), [3, 3, 3], _float(8), [1, 1, 1], [0, 0, 0], [2, 2, 2]
    ),
    "slow_conv_transpose2d.default": lambda: _args(_float(*X2), _float(*T2), [3, 3], _float(8)),
    "slow_conv_transpose3d.default": lambda: _args(_float(*X3), _float(*T3), [3, 3, 3], _float(8)),
    "view_as_complex_copy.default": lambda: _args(_float(4, 4, 2)),
    "view_as_real_copy.default": lambda: _args(torch.complex(_float(4, 4), _float(4, 4))),
}  # fmt: skip

"""A small Llama of `transformers`, with random weights, tensor-parallel on a mesh of 2x2.

The plan is torch's own `parallelize_module`: attention and feed-forward as in Megatron, norms
on pieces of the sequence. The first mesh dim shares out the batch.
Source: V. Korthikanti et al. (2022), arXiv:2205.05198, section 4.2.2.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import dtensor_registry as dr

MESH = (2, 2)
BATCH, SEQUENCE, STEPS = 4, 16, 2


def train() -> None:
    """Join the group and train."""
    dist.init_process_group("gloo")
    train_on(init_device_mesh("cpu", MESH, mesh_dim_names=("dp", "tp")))


def train_on(mesh: DeviceMesh) -> None:
    """Take a few steps on random tokens."""
    # Here, since the tests are collected where transformers is not installed.
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=SEQUENCE,
            attn_implementation="eager",
        )
    )
    parallelize(model, mesh["tp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with dr.install():
        for _ in range(STEPS):
            tokens = torch.randint(256, (BATCH, SEQUENCE)).chunk(MESH[0])[mesh.get_local_rank("dp")]
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def parallelize(model: nn.Module, tp: DeviceMesh) -> None:
    """Cut the parameters over the tensor-parallel mesh dim."""
    pieces = Shard(1)  # of the sequence, in activations (B, T, D)
    parallelize_module(
        model,
        tp,
        {
            "model.embed_tokens": RowwiseParallel(
                input_layouts=Replicate(), output_layouts=pieces, use_local_output=False
            ),
            "model.norm": SequenceParallel(),
            "lm_head": ColwiseParallel(input_layouts=pieces, output_layouts=Replicate()),
        },
    )
    for layer in model.get_submodule("model.layers").children():
        parallelize_module(
            layer,
            tp,
            {
                "input_layernorm": SequenceParallel(),
                "self_attn": PrepareModuleInput(
                    input_kwarg_layouts={"hidden_states": pieces},
                    desired_input_kwarg_layouts={"hidden_states": Replicate()},
                ),
                "self_attn.q_proj": ColwiseParallel(),
                "self_attn.k_proj": ColwiseParallel(),
                "self_attn.v_proj": ColwiseParallel(),
                "self_attn.o_proj": RowwiseParallel(output_layouts=pieces, use_local_output=False),
                "post_attention_layernorm": SequenceParallel(),
                "mlp": PrepareModuleInput(input_layouts=pieces, desired_input_layouts=Replicate()),
                "mlp.gate_proj": ColwiseParallel(),
                "mlp.up_proj": ColwiseParallel(),
                "mlp.down_proj": RowwiseParallel(output_layouts=pieces, use_local_output=False),
            },
        )

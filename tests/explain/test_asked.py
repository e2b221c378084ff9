"""The notation of questions: what it reads, and where it points when it cannot."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dtensor_registry.errors import NotationError
from dtensor_registry.explanation import AskedTensor, parse_argument, parse_choice, parse_tensor
from dtensor_registry.mesh_sizes import MeshSizes, parse_mesh
from dtensor_registry.placements import REPLICATE, Partial, Shard, StridedShard

S0, S1, R = Shard(0), Shard(1), REPLICATE


@pytest.mark.parametrize(
    ("text", "tensor"),
    [
        ("f32[4096,1024]@S(0),R", AskedTensor("f32", (4096, 1024), (S0, R))),
        (" bf16[ 4 , 2 ] @ P(max) ", AskedTensor("bf16", (4, 2), (Partial("max"),))),
        ("i64[]", AskedTensor("i64", (), None)),
        ("f32[0,3]@R", AskedTensor("f32", (0, 3), (R,))),
        ("f32[4,2]@S(-1)", AskedTensor("f32", (4, 2), (S1,))),
        ("f32[8]@_S(0, 2),S(0)", AskedTensor("f32", (8,), (StridedShard(0, 2), S0))),
        ("float8_e5m2[2]", AskedTensor("float8_e5m2", (2,), None)),
    ],
)
def test_tensors(text: str, tensor: AskedTensor) -> None:
    assert parse_tensor(text) == tensor
    assert parse_tensor(str(tensor)) == tensor


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("2", None, 2),
        ("-1", None, -1),
        ("alpha=0.5", "alpha", 0.5),
        ("'trunc'", None, "trunc"),
        ("dim=[0, 1]", "dim", [0, 1]),
        ("[]", None, []),
        ("None", None, None),
        ("dtype=torch.float16", "dtype", "torch.float16"),
        ("out=f32[2]@R", "out", AskedTensor("f32", (2,), (R,))),
        (
            "[f32[2]@S(0),R, None, i64[3]]",
            None,
            [AskedTensor("f32", (2,), (S0, R)), None, AskedTensor("i64", (3,), None)],
        ),
        ("[None, None, i64[3]@R]", None, [None, None, AskedTensor("i64", (3,), (R,))]),
        ("[None, 2]", None, [None, 2]),
    ],
)
def test_arguments(text: str, name: str | None, value: Any) -> None:
    assert parse_argument(text) == (name, value)


@pytest.mark.parametrize(
    ("text", "mesh"),
    [
        ("8", MeshSizes((8,))),
        ("2x4", MeshSizes((2, 4))),
        ("dp=2,tp=4", MeshSizes((2, 4), ("dp", "tp"))),
    ],
)
def test_meshes(text: str, mesh: MeshSizes) -> None:
    assert parse_mesh(text) == mesh
    assert str(mesh) == text


@pytest.mark.parametrize(
    ("text", "inputs", "outputs"),
    [
        ("S(1),R -> S(0),R", ((S1, R),), ((S0, R),)),
        ("S(0),R; R,S(1) -> S(0),S(1)", ((S0, R), (R, S1)), ((S0, S1),)),
        ("(S(0), S(1)) <- (S(0), R), (R, S(1))", ((S0, R), (R, S1)), ((S0, S1),)),
        ("R; R", ((R,), (R,)), None),
        ("(R), - <- (R)", ((R,),), ((R,), None)),
        ("R ->", ((R,),), ()),
    ],
)
def test_choices(text: str, inputs: Any, outputs: Any) -> None:
    asked = parse_choice(text)
    assert (asked.inputs, asked.outputs) == (inputs, outputs)


@pytest.mark.parametrize(
    ("parse", "text", "position"),
    [
        (parse_tensor, "f32[4,a]@R", 0),
        (parse_tensor, "f32[4,,2]@R", 4),
        (parse_tensor, "f32[4]@R,Q", 9),
        (parse_tensor, "f32[4] R", 7),
        (parse_tensor, "f32[4]@S?(0)", 7),
        (parse_tensor, "f32[4]@S(1)", 7),
        (parse_tensor, "f32[4]@R,S(0)/8", 7),
        (parse_tensor, "f32[9999999999999,9999999999999]", 4),
        (parse_tensor, "f32[0,99999999999999999999]", 4),
        (parse_tensor, f"f32[{'9' * 5000}]", 4),
        (parse_tensor, f"f32[4]@R,S({'9' * 5000})", 11),
        (parse_tensor, "f32[4]@_S(0, 9999999999999999999)", 13),
        (parse_argument, "[" * 5000, 0),
        (parse_argument, "x=f32[4]@X", 9),
        (parse_argument, "[f32[4]@R, f32[4]@X]", 18),
        (parse_argument, "[f32[4]@R", 9),
        (parse_argument, "alpha=two", 6),
        (parse_mesh, "2x0", 2),
        (parse_mesh, "100000x100000", 0),
        (parse_mesh, f"2x{'9' * 5000}", 0),
        (parse_mesh, "dp=2,4", 5),
        (parse_mesh, "a=2,a=2", 0),
        (parse_choice, "R -> X", 5),
        (parse_choice, "(R) <- (S(0), X)", 14),
        (parse_choice, "(R), R <- R", 0),
    ],
)
def test_errors_point_at_the_character(parse: Any, text: str, position: int) -> None:
    with pytest.raises(NotationError) as caught:
        parse(text)
    assert caught.value.text == text
    assert caught.value.position == position


def test_the_largest_tensor_and_the_largest_mesh_are_read() -> None:
    assert parse_tensor(f"u8[{2**59 - 1}]").shape == (2**59 - 1,)
    assert parse_mesh("1024x1024").ranks == 2**20


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("f32[4]@S(0)/8", "a tensor has S(0), not S(0)/8: how many groups a dim holds"),
        ("f32[4]@S?(0)", "a tensor has S(0), not S?(0), at"),
    ],
)
def test_what_belongs_to_rules_is_told_from_what_a_tensor_has(text: str, told: str) -> None:
    with pytest.raises(NotationError, match=re.escape(told)):
        parse_tensor(text)

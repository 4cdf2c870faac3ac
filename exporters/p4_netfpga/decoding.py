# SPDX-License-Identifier: Apache-2.0
"""Reads a network back from the constants of ``n3ic.p4``; shares no code with the writer."""

# Numbers have a bounded count of digits, so that a hostile program cannot make int() slow.

from __future__ import annotations

import re

from n3ic.errors import VerifyError
from n3ic.exporters.p4.shared.decoding import Place, decoded_layers, digest_of_numbers
from n3ic.model.network import BinaryModel
from n3ic.targets.decoding import Decoded

_XNOR = re.compile(
    r"^ +user_metadata\.l(\d{1,9})_v(\d{1,9}) = \(?~\(user_metadata\.(x|l\d{1,9}_y) \^ "
    r"(\d{1,9})w0x([0-9a-f]+)\)(?:\) & (\d{1,9})w0x([0-9a-f]+))?;$",
    re.MULTILINE,
)
_SIGN = re.compile(
    r"^ +user_metadata\.l(\d{1,9})_f(\d{1,9}) = .*"
    r"user_metadata\.l(\d{1,9})_v(\d{1,9})\) - \d{1,9}w(\d{1,10})\) >> .*;$",
    re.MULTILINE,
)
_SCORE = re.compile(
    r"^ +user_metadata\.score(\d{1,9}) = \(\(bit<32>\) user_metadata\.l(\d{1,9})_v(\d{1,9})\) \+ "
    r"32w0x([0-9a-f]{8});$",
    re.MULTILINE,
)
_SHUNTING = re.compile(
    r"^ +user_metadata\.shunted = 32w0 - \(\(\(user_metadata\.best - user_metadata\.second\)"
    r" - 32w0x([0-9a-f]{8})\) >> 31\);$",
    re.MULTILINE,
)
_PORT = re.compile(r"^ +sume_metadata\.dst_port = .*\(8w0x([0-9a-f]{2}) & .*;$", re.MULTILINE)
_MODEL = re.compile(r"\b(?:hdr\.n3ic|digest_data)\.model = 32w0x([0-9a-f]{8});")


def decode_program(source: str, model: BinaryModel, shunt_port: int | None = None) -> Decoded:
    """Decode the network in a program's constants.

    Args:
        source: P4 source.
        model: the model, which gives the shape and the model's number.
        shunt_port: port for shunted packets; None if they leave like all others.

    Raises:
        VerifyError: a constant is missing, duplicated, or applied to another neuron's counter, or
            shunted packets go to another port.
    """
    name = "n3ic.p4"
    values: dict[Place, int] = {}

    def keep(kind: str, layer: str, neuron: str, value: int) -> None:
        place = kind, int(layer), int(neuron)
        if place in values:
            raise VerifyError(f"{name}: {kind} of layer {layer}, neuron {neuron} is duplicated")
        values[place] = value

    for layer, neuron, read, width, weights, mask_width, mask in _XNOR.findall(source):
        expected = "x" if layer == "0" else f"l{int(layer) - 1}_y"
        # The same weights on another vector are another network: a layer reads the previous one.
        if read != expected or mask_width not in ("", width):
            raise VerifyError(f"{name}: layer {layer}, neuron {neuron} reads {read}")
        keep("weights", layer, neuron, _hex(weights))
        if mask:
            keep("mask", layer, neuron, _hex(mask))
    for layer, neuron, counted, counter, threshold in _SIGN.findall(source):
        if (layer, neuron) != (counted, counter):
            raise VerifyError(f"{name}: layer {layer}, neuron {neuron} reads another's counter")
        keep("limit", layer, neuron, int(threshold))
    for neuron, layer, counter, bias in _SCORE.findall(source):
        if neuron != counter:
            raise VerifyError(f"{name}: score {neuron} reads the counter of {counter}")
        keep("limit", layer, neuron, _hex(bias))
    shunt = shunting_of(source, shunt_port)
    digest = digest_of_numbers(model_numbers(source), model)
    layers = decoded_layers(name, values, model)
    return Decoded(name, layers, digest=digest, shunt=shunt)


def shunting_of(source: str, shunt_port: int | None) -> int | None:
    """Decode the smallest margin that a program does not shunt; None if it shunts nothing.

    Raises:
        VerifyError: there are several thresholds, or shunted packets go to another port.
    """
    thresholds = [_hex(digits) for digits in _SHUNTING.findall(source)]
    ports = [_hex(digits) for digits in _PORT.findall(source)]
    if len(thresholds) > 1 or ports != ([] if shunt_port is None else [shunt_port]):
        raise VerifyError(
            f"n3ic.p4: shunts below the thresholds {thresholds} to the ports {ports}; one "
            f"threshold at most and the export's port {shunt_port} are expected"
        )
    return next(iter(thresholds), None)


def model_numbers(source: str) -> list[int]:
    """Decode the model's number, which a program writes twice.

    Raises:
        VerifyError: it is written once, or more often than twice.
    """
    numbers = _MODEL.findall(source)  # once for the reply's header, once for the digest
    if len(numbers) != 2:
        raise VerifyError(f"n3ic.p4: the model's number is written {len(numbers)} times, not twice")
    return [_hex(number) for number in numbers]


def _hex(digits: str) -> int:
    return int(digits, 16)

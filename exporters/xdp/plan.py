# SPDX-License-Identifier: Apache-2.0
"""What a metering program is loaded with: by Python, or by ``n3icd`` from a pack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from n3ic.errors import ExportError, UsageError
from n3ic.exporters.xdp import policy_parser
from n3ic.exporters.xdp.layout import KEY, SLOTS_PER_FLOW, TAGS, WAYS, bucket_type, slot_type
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.program import Clock, policy_index, policy_value
from n3ic.exporters.xdp.resident import check_slot
from n3ic.exporters.xdp.source import Table
from n3ic.exporters.xdp.verdict_lists import NEW_FLOWS, PREFIX_BITS, SECOND_NS, VERDICTS, Limits
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec

CPU_QUEUE = 2048  # maximum packets queued for another CPU
_HASH_LINKS = 48  # bytes that the kernel's hash map keeps beside key and value


@dataclass(frozen=True)
class Choices:
    """What the user chooses.

    Attributes:
        clock: clock of the program.
        policies: actions by verdict, see :mod:`~.policy_parser`; other packets pass.
        rules: rules for a flow's slot; other flows use ``otherwise``.
        otherwise: slot of flows without a matching rule; the exported model goes there.
        limits: what bounds verdicts and new flows; the policies give the sizes of prefixes.
        room: room for verdicts by decisions on flows, and for those on hosts and prefixes.
        flows: flows that the table is made for; None for the cache of the specification.
        memory: maximum bytes of the flow table, in place of ``flows``.
        models: networks by slot, in place of the exported one and beside it.
    """

    clock: Clock = "kernel"
    policies: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    otherwise: int = 0
    limits: Limits = Limits(new_flows=NEW_FLOWS)  # noqa: RUF009 - frozen
    room: int = VERDICTS
    flows: int | None = None
    memory: int | None = None
    models: Mapping[int, Classifier] | None = None


@dataclass(frozen=True)
class Plan:
    """Checked choices for a program.

    Attributes:
        choices: the choices, with the sizes of prefixes in the limits, and without ``memory``.
        compiled: network for whose structure the program is.
        spec: its meter.
        table: flow table of the program.
        models: networks by slot.
    """

    choices: Choices
    compiled: Classifier
    spec: MeterSpec
    table: Table
    models: Mapping[int, Classifier]

    def policies(self) -> tuple[dict[int, bytes], dict[int, str]]:
        """Values of the map ``policies``, and names of interfaces by their place in theirs."""
        classes = structure_of([self.compiled]).classes
        rows = {i: policy_value("pass") for i in range(policy_index("excess", classes) + 1)}
        interfaces = {}
        for i, one in enumerate(self.acts):
            argument = one.argument
            if isinstance(argument, str):
                interfaces[i], argument = argument, i
            ttl = int(one.ttl_s * SECOND_NS) // self.spec.tick_ns
            value = policy_value(one.action, argument, one.scope, ttl, one.from_packet, one.times)
            rows[policy_index(one.verdict, classes)] = value
        return rows, interfaces

    @property
    def cpus(self) -> list[int]:
        """CPUs that policies send packets to."""
        return [int(one.argument) for one in self.acts if one.action == "cpu"]

    @property
    def acts(self) -> list[policy_parser.VerdictPolicy]:
        """Policies by verdict."""
        named = self.models[self.choices.otherwise].classes
        return policy_parser.policies(self.choices.policies, named)


def plan(compiled: Classifier, table: Table, choices: Choices) -> Plan:
    """Check what is loaded.

    Args:
        compiled: network of an export.
        table: flow table of its program.
        choices: what the user chose.

    Raises:
        ExportError: the network has no meter.
        UsageError: a policy is malformed or can never act, two policies name the same verdict, a
            network has another meter or other classes, or a size is none.
    """
    spec, otherwise = compiled.meter, choices.otherwise
    if spec is None:
        raise ExportError(
            f"{compiled.name} has no meter: train it on a table of `n3ic data extract`"
        )
    models = {otherwise: compiled, **(choices.models or {})}
    acts = policy_parser.policies(choices.policies, models[otherwise].classes)
    for slot, model in models.items():
        check_slot(slot)
        if model.meter != spec:
            raise UsageError(f"{model.name}: its meter is not that of {compiled.name}")
        if acts and model.classes != models[otherwise].classes:
            raise UsageError(f"{model.name}: its classes are not those of the policies")
        policy_parser.check_policies(choices.policies, model)
    bits = next((one.prefix_bits for one in acts if one.scope == "prefix"), PREFIX_BITS)
    if choices.limits.max_blocked > choices.room:
        raise UsageError(
            f"--max-blocked {choices.limits.max_blocked:,} hosts, but there is room for "
            f"{choices.room:,}: give more --verdicts"
        )
    flows = choices.flows
    if choices.memory is not None:
        flows = flows_in(choices.memory, spec, table)
    limits = replace(choices.limits, prefix_bits=bits)
    return Plan(
        replace(choices, limits=limits, flows=flows, memory=None), compiled, spec, table, models
    )


def flows_in(memory: int, spec: MeterSpec, table: Table) -> int:
    """Flows that a table of so many bytes is made for.

    Raises:
        UsageError: there is no room for one.
    """
    if table == "buckets":
        item = bucket_type(spec).itemsize + TAGS.itemsize
    else:  # the kernel's hash map has 48 bytes of links, and the key, beside each entry
        item = slot_type(spec).itemsize + KEY.itemsize + _HASH_LINKS
    flows = memory // item * (WAYS // SLOTS_PER_FLOW if table == "buckets" else 1)
    if not flows:
        raise UsageError(f"--memory: {memory:,} bytes, the smallest table has {item:,}")
    return flows

# SPDX-License-Identifier: Apache-2.0
"""The settings that a metering program is loaded with, by Python or by ``n3icd`` from a pack."""

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
_HASH_LINKS = 48  # bytes per entry that the kernel's hash map adds to key and value


@dataclass(frozen=True)
class Choices:
    """The user's choices for a metering program.

    Attributes:
        clock: clock of the program.
        policies: actions by verdict, see :mod:`~.policy_parser`; other packets pass.
        rules: rules for a flow's slot; other flows use ``otherwise``.
        otherwise: slot of flows without a matching rule; it holds the exported model.
        limits: limits of verdicts and new flows; the policies give the prefix sizes.
        room: maximum number of verdicts that decisions bring: on flows, and on hosts and prefixes.
        flows: number of flows for which the table is sized; None for that of the specification.
        memory: maximum bytes of the flow table, instead of ``flows``.
        models: networks by slot, besides the exported one or in its place.
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
        choices: the choices, with prefix sizes in the limits and ``flows`` in place of ``memory``.
        compiled: network for whose structure the program was compiled.
        spec: the network's meter.
        table: flow table of the program.
        models: networks by slot.
    """

    choices: Choices
    compiled: Classifier
    spec: MeterSpec
    table: Table
    models: Mapping[int, Classifier]

    def policies(self) -> tuple[dict[int, bytes], dict[int, str]]:
        """Values of the map ``policies``, and interface names by their index in the map of them."""
        classes = structure_of([self.compiled]).classes
        rows = {i: policy_value("pass") for i in range(policy_index("excess", classes) + 1)}
        interfaces = {}
        for i, one in enumerate(self.acts):
            argument = one.argument
            if isinstance(argument, str):
                interfaces[i], argument = argument, i
            ttl = int(one.ttl_s * SECOND_NS) // self.spec.tick_ns
            longest = int(one.max_ttl_s * SECOND_NS) // self.spec.tick_ns
            value = policy_value(
                one.action, argument, one.scope, ttl, one.from_packet, one.times, longest
            )
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
    """Check the user's choices against an export.

    Args:
        compiled: network of an export.
        table: flow table of its program.
        choices: what the user chose.

    Raises:
        ExportError: the network has no meter.
        UsageError: a policy is malformed or can never act, two policies name the same verdict, a
            network has another meter or other classes, or a size is too small.
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
    """Return the number of flows for which a table of ``memory`` bytes has room.

    Raises:
        UsageError: there is no room for any flow.
    """
    if table == "buckets":
        item = bucket_type(spec).itemsize + TAGS.itemsize
    else:  # the kernel's hash map stores the key and 48 bytes of links with each entry
        item = slot_type(spec).itemsize + KEY.itemsize + _HASH_LINKS
    flows = memory // item * (WAYS // SLOTS_PER_FLOW if table == "buckets" else 1)
    if not flows:
        raise UsageError(f"--memory: {memory:,} bytes, but the smallest table takes {item:,}")
    return flows

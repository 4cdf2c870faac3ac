# SPDX-License-Identifier: Apache-2.0
"""What targets estimate of a model before its export."""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.errors import ExportError
from n3ic.model.classifier import Classifier
from n3ic.model.layered import written
from n3ic.options import OptionValue
from n3ic.targets.base import exporter
from n3ic.targets.figures import Figure


def estimates(
    model: Classifier, target: str, options: Mapping[str, OptionValue]
) -> tuple[Figure, ...]:
    """Estimate size and speed of a model on a target, as an export writes it.

    Args:
        model: a model of any family.
        target: the target's name.
        options: the target's options; those that it does not have for models of this family are
            left out.

    Returns:
        The figures; empty if the target does not take the model.
    """
    try:
        network = written(model, smaller=True).model
        tool = exporter(target).for_family(network.family)
        names = {option.name for option in tool.options}
        own = tool.parse_options({n: v for n, v in options.items() if n in names})
        return tool.estimate(network, own)
    except ExportError:
        return ()

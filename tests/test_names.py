# SPDX-License-Identifier: Apache-2.0
"""A class has a name of its own, and a module the field's word for what it does."""

import ast
from collections import defaultdict

TOPS = ("n3ic", "exporters", "families", "systems", "datasets")
# Words of this project's own making, with what the field calls the thing.
PRIVATE_WORDS = {
    "around": "shell",
    "asking": "client",
    "boundary": "verification_vectors",
    "coarse": "round_cuts",
    "compiled_in": "embedded_model",
    "contest": "model_selection",
    "custody": "integrity",
    "decoded": "readback",
    "described": "catalogue_dataset",
    "entries": "what they are",
    "exchange": "column_permutation",
    "existing": "export_index",
    "exporting": "export",
    "form": "parameters",
    "further": "fine_tuning",
    "grow": "boosting",
    "heap": "bit_heap",
    "home": "coordinator",
    "hostile": "fuzz_traffic",
    "lower": "compile",
    "lowering": "compile",
    "material": "training_data",
    "measuring": "measurement",
    "nearest": "shape_search",
    "overlay": "fcsn_api",
    "own": "user_table",
    "parts": "checkpoints",
    "placed": "placed_model",
    "plain": "plain_data",
    "prepared": "training_rows",
    "rare": "class_imbalance",
    "reading": "parser",
    "ready": "builtin",
    "rooms": "packages",
    "running": "runner",
    "second": "second_stage",
    "seen": "trace",
    "starting": "launch",
    "station": "endpoint",
    "stored": "stored_tables",
    "survey": "column_profile",
    "telling": "separability",
    "times": "flow_rate",
    "verb": "api",
    "ways": "transfers",
    "wide": "merged_model",
    "words": "policy_parser",
}


def modules(repository):
    paths = [p for top in TOPS for p in (repository / top).rglob("*.py")]
    assert len(paths) > 300
    return paths


def public_classes(tree):
    """Names of the classes at a module's top, below ``if`` and ``try`` as well."""
    bodies = [tree.body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name
            elif isinstance(node, ast.If | ast.Try | ast.With):
                bodies += [node.body, getattr(node, "orelse", [])]


def test_a_class_has_a_name_of_its_own(repository):
    places = defaultdict(list)
    for path in modules(repository):
        for name in public_classes(ast.parse(path.read_text(encoding="utf-8"))):
            places[name].append(str(path.relative_to(repository)))
    assert len(places) > 300
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_modules_are_named_in_the_words_of_the_field(repository):
    misnamed = [
        f"{path.relative_to(repository)}: better {PRIVATE_WORDS[path.stem]}"
        for path in modules(repository)
        if path.stem in PRIVATE_WORDS
    ] + [
        f"{path.parent.relative_to(repository)}/: better {PRIVATE_WORDS[path.parent.name]}"
        for path in modules(repository)
        if path.name == "__init__.py" and path.parent.name in PRIVATE_WORDS
    ]
    assert misnamed == []

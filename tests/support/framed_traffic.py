# SPDX-License-Identifier: Apache-2.0
"""Labels of the demonstration's flows, as a file of labels has them."""

import json

from scripts.stream_demo.traffic import CLASSES


def label_line(frames, label):
    """The line of a file of labels that names a flow by its first frame."""
    client, server = (".".join(map(str, frames[0][at : at + 4])) for at in (26, 30))
    line = {"source": client, "source_port": 1024, "destination": server, "destination_port": 53}
    return json.dumps(line | {"protocol": 17, "label": CLASSES[label]}) + "\n"

# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of real captures, compared with those of another program."""

from collections import defaultdict

import pytest

pytest.importorskip("dpkt", reason="needs n3ic[label]")
pytest.importorskip("aioquic", reason="needs n3ic[label]")
ja4plus = pytest.importorskip("ja4plus", reason="needs the package ja4plus")

from scapy.utils import PcapReader  # noqa: E402

from n3ic.studies.label.names import named_flows, text_of  # noqa: E402

CAPTURES = (
    "443-git.pcap", "443-safari.pcap", "ftp-start-tls.pcap", "imap-starttls.pcap",
    "ja3_lots_of_cipher_suites.pcap", "pop3_stls.pcap", "quic_frags_ch_in_multiple_packets.pcapng",
    "rdp_over_tls.pcap", "tls-rdn-extract.pcap", "tls_1.3_unidirectional_client.pcapng",
    "tls_ech.pcapng", "tls_port_80.pcapng",
)  # fmt: skip


def theirs(path):
    fingerprinter = ja4plus.JA4Fingerprinter()
    with PcapReader(str(path)) as packets:
        for packet in packets:
            fingerprinter.process_packet(packet)
    out = defaultdict(set)
    for one in fingerprinter.get_fingerprints():
        key = one["src"], one["srcport"], one["dst"], one["dstport"]
        out[key].add(one["fingerprint"])
    return dict(out)


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTURES)
def test_fingerprints_are_those_of_another_program(real_data, name):
    path = real_data / "pcaps" / name
    if not path.is_file():
        pytest.skip(f"no {path}")
    ours = {
        (text_of(f.source[0]), f.source[1], text_of(f.destination[0]), f.destination[1]): {
            f.hello.ja4
        }
        for f in named_flows([str(path)])
        if f.hello
    }
    assert ours
    assert ours == theirs(path)

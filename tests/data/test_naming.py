# SPDX-License-Identifier: Apache-2.0
"""What columns are called by programs that write flows, and what each should become.

A line a role and unit; ``feature`` without a unit where the name says none. The names are spelled
as the programs write them.
"""

import pytest

from n3ic.data.column_inference import infer
from n3ic.data.column_profile import ColumnProfile, column_names
from n3ic.data.column_roles import ROLES, UNITS, is_label_name, role_of

UNSW_NB15 = """
feature: service state rate trans ct_srv_src ct_dst_ltm ct_src_dport_ltm ct_dst_sport_ltm
feature: ct_dst_src_ltm ct_src_ltm ct_srv_dst is_sm_ips_ports proto
feature s: dur tcprtt synack ackdat
feature ms: sinpkt dinpkt Sintpkt Dintpkt Sjit Djit
feature packet: Spkts Dpkts sloss dloss
feature byte: sbytes dbytes smean dmean smeansz dmeansz swin dwin
feature bit/s: Sload Dload
address: srcip dstip
port: sport dsport
time: Stime Ltime
identifier: id stcpb dtcpb
ttl: sttl dttl ct_state_ttl
label: attack_cat Label
payload: trans_depth response_body_len res_bdy_len is_ftp_login ct_ftp_cmd ct_flw_http_mthd
"""

CICFLOWMETER = """
identifier: Flow ID
address: Source IP|Destination IP|Src IP|Dst IP
port: Source Port|Destination Port|Src Port|Dst Port
time: Timestamp
feature us: Flow Duration|Flow IAT Mean|Flow IAT Max|Flow IAT Min|Fwd IAT Total|Fwd IAT Mean
feature us: Bwd IAT Max|Bwd IAT Min|Active Mean|Active Max|Idle Mean|Idle Min
feature packet: Total Fwd Packets|Total Backward Packets|Subflow Fwd Packets|act_data_pkt_fwd
feature packet: Tot Fwd Pkts|Subflow Bwd Pkts|Fwd Act Data Pkts|Fwd Pkts/b Avg
feature packet: Fwd Avg Packets/Bulk
feature byte: Total Length of Fwd Packets|Fwd Packet Length Max|Bwd Packet Length Mean
feature byte: TotLen Fwd Pkts|Fwd Pkt Len Min|Pkt Size Avg|Fwd Seg Size Avg|Fwd Header Len
feature byte: Fwd Header Length|Fwd Header Length.1|Min Packet Length|Average Packet Size
feature byte: Avg Fwd Segment Size|Subflow Fwd Bytes|Subflow Bwd Byts|Init_Win_bytes_forward
feature byte: Init Bwd Win Byts|min_seg_size_forward|Fwd Avg Bytes/Bulk|Fwd Byts/b Avg
feature byte/s: Flow Bytes/s|Flow Byts/s|Fwd Avg Bulk Rate|Fwd Blk Rate Avg
feature packet/s: Flow Packets/s|Flow Pkts/s|Fwd Packets/s|Bwd Pkts/s
feature: Protocol|Fwd PSH Flags|FIN Flag Count|CWE Flag Count|Down/Up Ratio
root us: Flow IAT Std|Fwd IAT Std|Active Std|Idle Std
root byte: Packet Length Std|Packet Length Variance|Pkt Len Var|Bwd Packet Length Std
label: Label|attack_cat
"""

NFSTREAM = """
identifier: id vlan_id tunnel_id expiration_id
address: src_ip dst_ip
link: src_mac src_oui dst_mac dst_oui
port: src_port dst_port
feature: protocol ip_version splt_direction
time: bidirectional_first_seen_ms src2dst_last_seen_ms dst2src_first_seen_ms
feature ms: bidirectional_duration_ms src2dst_min_piat_ms dst2src_mean_piat_ms
feature packet: bidirectional_packets src2dst_packets bidirectional_syn_packets
feature byte: bidirectional_bytes dst2src_bytes bidirectional_min_ps src2dst_mean_ps dst2src_max_ps
root: bidirectional_stddev_ps
root ms: src2dst_stddev_piat_ms
label: application_name application_category_name application_is_guessed application_confidence
payload: requested_server_name client_fingerprint server_fingerprint user_agent content_type
"""

ZEEK = """
time: ts
identifier: uid tunnel_parents vlan inner_vlan community_id
address: id.orig_h id.resp_h orig_l2_addr resp_l2_addr
port: id.orig_p id.resp_p
feature: proto service conn_state local_orig local_resp history
feature s: duration
feature byte: orig_bytes resp_bytes missed_bytes orig_ip_bytes resp_ip_bytes
feature packet: orig_pkts resp_pkts
label: label detailed-label
"""

NFDUMP = """
time: ts te tr
feature s: td
address: sa da
port: sp dp
network: in out sas das smk dmk nh nhb ra exid
feature: pr flg fwd stos dtos
feature packet: ipkt opkt
feature byte: ibyt obyt
"""

NETFLOW_5 = """
address: srcaddr dstaddr
network: nexthop src_as dst_as src_mask dst_mask
feature packet: dPkts
feature byte: dOctets
time: first last sys_uptime unix_secs unix_nsecs
port: srcport dstport
feature: tcp_flags prot tos sampling_interval
identifier: flow_sequence engine_type engine_id
"""

NETFLOW_9 = """
address: IPV4_SRC_ADDR IPV4_DST_ADDR IPV6_SRC_ADDR
network: INPUT_SNMP OUTPUT_SNMP IPV4_NEXT_HOP SRC_AS
port: L4_SRC_PORT L4_DST_PORT
time: FIRST_SWITCHED LAST_SWITCHED FLOW_START_MILLISECONDS FLOW_END_MILLISECONDS FLOW_START_SEC
feature: PROTOCOL TCP_FLAGS CLIENT_TCP_FLAGS ICMP_TYPE ICMP_IPV4_TYPE SRC_TOS
feature byte: IN_BYTES OUT_BYTES LONGEST_FLOW_PKT SHORTEST_FLOW_PKT MIN_IP_PKT_LEN MAX_IP_PKT_LEN
feature byte: RETRANSMITTED_IN_BYTES TCP_WIN_MAX_IN TCP_WIN_MAX_OUT
feature packet: IN_PKTS OUT_PKTS RETRANSMITTED_OUT_PKTS NUM_PKTS_UP_TO_128_BYTES
feature packet: NUM_PKTS_1024_TO_1514_BYTES
feature ms: FLOW_DURATION_MILLISECONDS DURATION_IN DURATION_OUT SRC_TO_DST_IAT_MIN
feature byte/s: SRC_TO_DST_SECOND_BYTES DST_TO_SRC_SECOND_BYTES
feature bit/s: SRC_TO_DST_AVG_THROUGHPUT
root ms: SRC_TO_DST_IAT_STDDEV
ttl: MIN_TTL MAX_TTL
payload: DNS_QUERY_TYPE DNS_TTL_ANSWER FTP_COMMAND_RET_CODE L7_PROTO
identifier: DNS_QUERY_ID
label: Attack
"""

IPFIX = """
address: sourceIPv4Address destinationIPv6Address
link: sourceMacAddress destinationMacAddress
network: ipNextHopIPv4Address bgpSourceAsNumber bgpDestinationAsNumber sourceIPv4PrefixLength
network: ingressInterface egressInterface
port: sourceTransportPort destinationTransportPort
time: flowStartMilliseconds flowEndMicroseconds flowStartSysUpTime flowEndSeconds
feature: protocolIdentifier tcpControlBits ipClassOfService flowEndReason ipVersion icmpTypeCodeIPv4
feature: flowDirection initialTCPFlags reverseUnionTCPFlags
feature byte: octetDeltaCount octetTotalCount reverseOctetDeltaCount maximumIpTotalLength
feature byte: dataByteCount maxPacketSize firstNonEmptyPacketSize
feature packet: packetDeltaCount reversePacketTotalCount smallPacketCount nonEmptyPacketCount
feature ms: flowDurationMilliseconds averageInterarrivalTime
identifier: flowId vlanId tcpSequenceNumber reverseTcpSequenceNumber dot1qVlanId
ttl: minimumTTL maximumTTL ipTTL
root: standardDeviationInterarrivalTime reverseStandardDeviationPayloadLength
label: applicationName applicationId silkAppLabel
"""

OTHERS = """
feature byte: app_bytes cat_len class_bytes app_data_len
feature: class_of_service IPv6_Traffic_Class
feature packet: app_pkts target_pkts pkts_toserver
label: app my_class is_malicious label_2 traffic_type device_name sub_category_name
address: server_host http_host ip_2
"""

TABLES = {
    "UNSW-NB15": UNSW_NB15,
    "CICFlowMeter": CICFLOWMETER,
    "NFStream": NFSTREAM,
    "Zeek": ZEEK,
    "nfdump": NFDUMP,
    "NetFlow 5": NETFLOW_5,
    "NetFlow 9": NETFLOW_9,
    "IPFIX": IPFIX,
    "others": OTHERS,
}


def expected(program):
    """Each header with its role and unit; those of CICFlowMeter have blanks."""
    out = {}
    for line in TABLES[program].strip().splitlines():
        fact, names = line.split(": ", 1)
        role, _, unit = fact.partition(" ")
        headers = names.split("|" if program == "CICFlowMeter" else None)
        out |= dict.fromkeys(headers, (role, unit))
    return out


@pytest.mark.parametrize("program", TABLES)
def test_every_column_of_a_known_program_comes_out_right(program):
    wanted = expected(program)
    headers = list(wanted)
    # numbers of no other column and of no class, so that the name alone decides
    facts = [
        ColumnProfile(name, header, "integer", 1000, 500, highest=1e4)
        for name, header in zip(column_names(headers), headers, strict=True)
    ]
    columns = infer(facts)["columns"]
    matches = {}
    for fact in facts:
        entry = columns[fact.name]
        role, why = role_of(fact.name)
        assert (entry["use"], entry["reason"] == why) in ((True, False), (False, True))
        known = entry["unit"] if wanted[fact.header][1] or role == "feature" else ""
        matches[fact.header] = (role, known)
        assert is_label_name(fact.name) == (role == "label")
    assert matches == wanted


def test_more_than_a_hundred_real_names_are_checked():
    assert sum(len(expected(program)) for program in TABLES) > 200


def test_every_row_of_the_table_has_a_reason_and_no_entry_is_there_twice():
    for rows in (ROLES, UNITS):
        assert all(row.why and row.what for row in rows)
        entries = [entry for row in rows for entry in row.names.split()]
        assert sorted(entries) == sorted({*entries})

# SPDX-License-Identifier: Apache-2.0
"""The meaning of column names: a table to review, with a reason in each row.

A name is in lower case, with ``_`` for all but letters and digits. An entry matches its own name
and names that end in ``_`` and the entry; ``*`` matches anything, ``#`` a number, and an entry
after ``=`` only the whole name. The first matching row counts, so exceptions come before their
rule. The ``_2`` of a repeated name is ignored.

The names are those of argus and UNSW-NB15, CICFlowMeter in both spellings, NFStream, Zeek's
``conn.log``, nfdump, NetFlow version 5, version 9 as nProbe writes it, IPFIX as YAF writes it, and
those of public data sets that the field trains on; ``tests/data/test_naming.py`` and
``tests/data/test_leaks.py`` have them one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final


@dataclass(frozen=True)
class Row:
    """Names with one meaning.

    Attributes:
        what: the role, unit or end of the flow.
        why: the reason shown to users; for a unit, the origin of the names.
        names: entries, separated by blanks.
    """

    what: str
    why: str
    names: str

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        entries = (
            ("" if entry.startswith("=") else "(.*_)?")
            + re.escape(entry.removeprefix("=")).replace(r"\*", ".*").replace(r"\#", r"_?\d+")
            for entry in self.names.split()
        )
        return re.compile("|".join(entries))

    def has(self, name: str) -> bool:
        """Whether the name is one of the row's."""
        return bool(self._pattern.fullmatch(name))


_NUMBERED: Final = re.compile(r"(.*[a-z].*)_\d{1,3}", re.ASCII)  # names of repeated columns

ROLES: Final = (
    Row(
        "feature",
        "a field of a header, though it has the name of a class",
        "class_of_service ipv6_traffic_class",
    ),
    Row(
        "feature",
        "a count or rate, though its name ends with what it is counted over",
        "*_per_* *_p_srcip *_p_dstip *_p_sport *_p_dport *_p_destip num_ports n_ports",
    ),
    Row(
        "address",
        "an address tells the hosts of the capture apart",
        "ip ipv4 ipv6 ipaddr ipaddress ip_address addr address host hostname "
        "id_orig_h id_resp_h sip dip saddr daddr shost dhost srcip dstip srcaddr dstaddr "
        "srchost dsthost s_ip d_ip ip_src ip_dst ipsrc ipdst "
        "sourceipv*address destinationipv*address sourceip destinationip sourceaddress "
        "destinationaddress srcaddress dstaddress src_address dst_address scr_ip des_ip destip "
        "ip_src_host ip_dst_host =source =destination =src =dst =sa =da",
    ),
    Row(
        "link",
        "an address tells the hosts of the capture apart",
        "mac smac dmac srcmac dstmac eth_src eth_dst ethsrc ethdst oui mac_address macaddress "
        "sourcemacaddress destinationmacaddress bssid ssid wlan_sa wlan_da wlan_ra wlan_ta "
        "=ismc =odmc =idmc =osmc",
    ),
    Row(
        "network",
        "it tells the networks of the capture apart",
        "nexthop next_hop ipv4_next_hop =ipnexthopipv*address =bgpnexthopipv*address "
        "src_as dst_as asn bgp*asnumber src_mask dst_mask sourceipv*prefixlength "
        "destinationipv*prefixlength input_snmp output_snmp ingressinterface egressinterface "
        "=in =out =sas =das =smk =dmk =nh =nhb =ra =exid",
    ),
    Row(
        "port",
        "a port tells the connections and services of the capture apart",
        "port sport dport dsport srcport dstport id_orig_p id_resp_p pt srcpt dstpt "
        "sourcetransportport destinationtransportport sourceport destinationport destport "
        "scrport desport origport respport clientport serverport localport remoteport =ports "
        "portnumber port_number port_num port_no portno port# src_p dst_p =sp =dp",
    ),
    Row(
        "label",
        "by its name another form of the label",
        "label labels labeled labelled label_* labels_* label# silkapplabel "
        "class classes class_name class_label class_type class_id classid class# "
        "category cat category_name category# category_id "
        "subcategory subcat subcategory_name subcategory# sub_category =subtype attack_subtype "
        "attack attacks attack_* attack# attacktype attackid attackname attackdescription "
        "attackcat attackcategory attacklabel attack*type attackstage isattack "
        "malicious malware malware_* threat threat_* anomaly anomaly_* anomalyid anomalytype "
        "detection detections ids_* taxonomy heuristic nbdetectors nb_detectors detectors "
        "alert alert_* botnet botnet_* malware_family verdict benign is_benign intrusion "
        "=type =traffic =family =outcome =truth =target# kill_chain* mitre* severity "
        "target target_class target_label target_name ground_truth ground_truth_* "
        "prediction prediction_* predicted predicted_* traffic_type "
        "=device device_name devicename device_type devicetype device_category device_class "
        "app application app_name appname application_name applicationname applicationid "
        "application_category_name application_is_guessed application_confidence "
        "app_proto app_protocol app_label app_class app_category "
        "ndpi_proto ndpi_protocol",
    ),
    Row(
        "time",
        "a time tells when the capture was made",
        "timestamp ts stime ltime datetime date epoch "
        "start_time end_time starttime endtime time_start time_end timestart timeend "
        "start*time start*time_* end_*time end_time_* endtime_* last_time_* first_time_* "
        "first*time last*time begin*time stop_*time finish*time stoptime "
        "begin begin_* begins finish finished time_first time_last time_begin =stop =when =time "
        "arrival_time arrivaltime arrived capture_time frame_time frame_time_epoch "
        "frame_time_relative time_epoch time_relative epoch_time unix_time unixtime datetime_* "
        "mactime tsf time_of_day timeofday date_* time_stamp timestamp_* receive_time seen_at "
        "hour hours hour_* minute minutes minute_* day day_* days weekday week month month_* year "
        "dayofweek hourofday =second "
        "ts_year ts_month ts_day ts_hour ts_min ts_second te_year te_month te_day te_hour te_min "
        "te_second "
        "start start_ns start_us start_ms start_s start_sec "
        "end end_ns end_us end_ms end_s end_sec "
        "first first_ns first_us first_ms first_s first_sec firstseen first_time "
        "first_switched first_seen first_seen_ns first_seen_us first_seen_ms first_seen_s "
        "last last_ns last_us last_ms last_s last_sec lastseen last_time "
        "last_switched last_seen last_seen_ns last_seen_us last_seen_ms last_seen_s "
        "flow_start_*seconds flow_end_*seconds flow_start_time* flow_end_time* "
        "flowstart*seconds flowend*seconds flowstartsysuptime flowendsysuptime "
        "flowstarttime* flowendtime* flowstart flowend systeminittimemilliseconds "
        "sysuptime sys_uptime unix_secs unix_nsecs =te =tr",
    ),
    Row(
        "capture",
        "it names the data set, the capture or the tool, or how the rows were split",
        "dataset data_set dataset_* data_set_* datasetname capture capture_* capturefile pcap "
        "pcap_* pcapfile file filename file_name source_file origin_file trace tracefile scenario "
        "scenario_* experiment experiment_* testbed run_id =run tool site sensor probe subset "
        "split partition fold =set train_test =tap",
    ),
    Row(
        "laboratory",
        "a constant of the laboratory or of those who labelled it, not of the traffic",
        "inbound outbound is_inbound similarhttp simillarhttp similar_http "
        "difficulty difficulty_* difficultylevel =level =score# "
        "channel_freq channel_frequency dbm_antsignal antsignal antenna interface interface_* "
        "=successful_prediction successpred num_learners",
    ),
    Row(
        "identifier",
        "an identifier of the flow or of its row",
        "=flow id ids uid uuid guid flowid pkseqid index row rowid row_* row_id stcpb dtcpb "
        "seq seq_no seqno seq_num seqnum seq_number seqnumber seq_raw seq_le flow_sequence "
        "tcpsequencenumber sequence_number sequencenumber wlan_seq =no =num =nr "
        "reversetcpsequencenumber ack_no ackno ack_num acknum ack_number acknumber =tcp_ack "
        "ack_raw =ack_seq acknowledgement_number acknowledgment_number "
        "stream stream_id streamid stream_index streamindex stream_number frame_number "
        "framenumber packet_id packet_number packetnumber "
        "ipid ip_id sipid dipid ip_ident ipident trans_id transid transaction_id transactionid "
        "user username user_name userid user_id account account_name email "
        "session cookie vlan *vlanid svln dvln =unnamed_* =unnamed "
        "tunnel_parents engine_type",
    ),
    Row(
        "checksum",
        "a checksum is random bits of the packet's own content",
        "checksum checksum_* cksum chksum crc crc32 fcs wlan_fcs hash md5 sha1 sha256 digest icv "
        "wep_iv",
    ),
    Row(
        "payload",
        "read from the payload, of which a NIC keeps nothing",
        "server_name sni user_agent fingerprint ja3 ja4 ja3s ja4s dns_query query domain uri url "
        "subject issuer content_type dns_query_type dns_ttl_answer ftp_command_ret_code "
        "l7_proto l7_proto_name l7_protocol "
        "trans_depth response_body_len res_bdy_len is_ftp_login ct_ftp_cmd ct_flw_http_mthd",
    ),
    Row(
        "ttl",
        "it tells a host and how far away it is",
        "ttl sttl dttl srcttl dstttl minttl maxttl ttl_* sttl_* dttl_* minimumttl maximumttl ipttl",
    ),
    Row(
        "root",
        "it needs squares and roots, or logarithms, which no target computes",
        "std std_* stdev stdev_* stddev stddev_* std_dev_* standard_deviation "
        "standard_deviation_* sd sd_* var var_* variance variance_* skew skew_* skewness "
        "skewness_* kurtosis kurtosis_* entropy entropy_* std_dev standarddeviation* "
        "reversestandarddeviation*",
    ),
)

IN_NAME: Final = "the unit is in the name"
UNITS: Final = (
    Row("ms", "argus counts the gaps of a side and their jitter in them", "sinpkt dinpkt"),
    Row("ms", "UNSW-NB15's raw files call them so", "=sintpkt =dintpkt =sjit =djit"),
    Row("s", "argus, Zeek, nfdump", "=dur =duration =tcprtt =synack =ackdat =td"),
    Row("packet", "nfdump", "=ipkt =opkt"),
    Row("ms", "nProbe", "=duration_in =duration_out src_to_dst_iat_* dst_to_src_iat_*"),
    Row("bit/s", "argus, nProbe", "sload dload srcload dstload *_avg_throughput =tcpload"),
    Row("packet", "nProbe: packets of these many bytes", "num_pkts_* num_packets_*"),
    Row("byte", "argus: mean size of a packet", "=smean =dmean smeansz dmeansz =smeanpktsz"),
    Row("packet", "argus: packets sent again", "=sloss =dloss"),
    Row("byte", "nProbe: the size of one packet", "longest_*pkt shortest_*pkt"),
    Row("byte", "the size of one packet", "largest_*packet smallest_*packet"),
    Row("byte/s", "CICFlowMeter, nProbe", "flow_byts_s flow_bytes_s second_bytes bulk_rate"),
    Row("byte/s", "CICFlowMeter's short names", "blk_rate_avg byts_s bytes_s bytes_sec"),
    Row("byte/s", "bytes in a second", "*byte*_s *byt*_s *octet*_s *byte*_sec *byte*_second"),
    Row("packet/s", "packets in a second", "*pkt*_s *packet*_s *pkt*_sec *packet*_second"),
    Row("packet", "CICFlowMeter: packets of a burst", "pkts_b_avg packets_bulk"),
    Row("byte", "CICFlowMeter: bytes of a burst", "byts_b_avg bytes_bulk"),
    Row("ns", IN_NAME, "ns nsec nanosecond nanoseconds *nanoseconds"),
    Row("us", IN_NAME, "us usec microsecond microseconds *microseconds"),
    Row("ms", IN_NAME, "ms msec millisecond milliseconds *milliseconds"),
    Row("s", IN_NAME, "s sec secs second seconds"),
    Row("ms", "YAF", "=averageinterarrivaltime =reverseaverageinterarrivaltime"),
    Row("byte", "CICFlowMeter: sums of lengths", "totlen_*_pkts"),
    Row("packet", "packets with payload", "payload_pkts payload_packets"),
    Row("byte", "a length or size", "length len size sz pktlen pktsz length_* len_* size_*"),
    Row("byte", "a length or size", "sz_* payload payload_*"),
    Row("byte", "NFStream: sizes of packets", "min_ps mean_ps max_ps"),
    Row("byte", "IPFIX: the lengths of IP packets", "*totallength *packetsize"),
    Row("byte", "a TCP window", "swin dwin tcp_win_max_in tcp_win_max_out"),
    Row("byte", "bytes", "*byte *bytes *byt *byts *octet *octets"),
    Row("byte", "bytes", "*bytes_* *byts_* *octets_* *byte_* *octet_*"),
    Row("byte", "IPFIX", "*octetdeltacount *octettotalcount *bytecount *bytedeltacount"),
    Row("packet", "IPFIX", "*packetdeltacount *packettotalcount *packetcount"),
    Row("packet", "CICFlowMeter: packets with payload", "act_data_pkt_*"),
    Row("packet", "packets", "pkt pkts packet packets spkts dpkts totpkts srcpkts dstpkts"),
    Row("packet", "Suricata", "pkts_to*"),
)

CICFLOWMETER: Final = frozenset({"flow_duration", "flow_iat_mean", "flow_iat_max"})
CICFLOWMETER_TIMES: Final = Row(  # of a table that has those
    "us",
    "CICFlowMeter counts microseconds, which its names do not say",
    "=flow_duration =flow_iat_* =fwd_iat_* =bwd_iat_* =active_* =idle_*",
)

MEASURES: Final = Row(
    "measure",
    "a count, size, time or statistic of packets",
    "count counts counts_* *_count_* *count cnt ct_* n_* num_* no_of_* number_of_* number numbers "
    "rate rates *rate rate_* ratio ratio_* share share_* mean mean_* avg avg_* average average_* "
    "min min_* max max_* median median_* sum sum_* total total_* tot_* iat iat_* piat piat_* gap "
    "gap_* gaps jitter jitter_* jit win win_* window window_* windowsize mss delta delta_* "
    "weight magnitude magnitue radius covariance pcc active active_* idle idle_* bulk bulk_* "
    "*duration* dur rtt rtt_* *rtt throughput load loss losses retransmi* *retransmi* fragment "
    "fragments urgent hot speed entropy bits bits_* bps pps header header_* hdr hdr_*",
)

FIELDS: Final = Row(
    "field",
    "a field of a header, a flag, a state or a service",
    "proto* protocol* service services svc state states *_state_* *state flag flags flg flgs "
    "flag_* flags_* *flags *flag fwd history dir direction *direction local_orig local_resp tos "
    "tos_* *tos dscp ecn land syn fin rst psh push ack urg ece cwr cwe syn_* fin_* rst_* psh_* "
    "push_* ack_* urg_* opcode method version version_* rcode qtype qclass status status_code "
    "*status logged_in root_shell su_attempted is_*login is_*ports type_of_service "
    "=http =https =dns =telnet =smtp =ssh =irc =tcp =udp =dhcp =arp =icmp =igmp =ip* =llc =ntp "
    "ssl_* tls_* dns_* http_* weird_* mqtt_* mbtcp_* arp_* tcp_* udp_* icmp_* ip_* ipv4_* ipv6_* "
    "wlan_* quic_* ssh_* smtp_* ftp_*",
)

PROTOCOLS: Final = Row(
    "protocol",
    "the protocol above IP, the fifth part of a conversation's key",
    "=proto =protocol =prot =ip_proto =ip_protocol =ipproto =ipprotocol =ip_prot =ipprot "
    "=l4 =l4_proto =l4proto =l4_protocol =l4protocol =protocol_number =protocolnumber "
    "=protocol_identifier =protocolidentifier =pr",
)

ENDS: Final = (
    Row(
        "destination",
        "where the flow goes, or who answers",
        "dst* dest* resp* server* dip* daddr* dport* d_ip* d_addr* d_port* dsport* =da =dp",
    ),
    Row(
        "source",
        "where the flow comes from, or who asks",
        "src* source* orig* client* sip* saddr* sport* s_ip* s_addr* s_port* =sa =sp",
    ),
)


def first_row(rows: tuple[Row, ...], name: str) -> Row | None:
    """The first row that matches the name, or the name without the number of a repeated one."""
    numbered = _NUMBERED.fullmatch(name)
    names = (name, numbered[1]) if numbered else (name,)
    return next((row for each in names for row in rows if row.has(each)), None)


WHY: Final = {row.what: row.why for row in ROLES}


def role_of(name: str) -> tuple[str, str]:
    """The role of a column by its name, and the reason; ``feature`` if no row matches."""
    row = first_row(ROLES, name)
    return (row.what, row.why) if row else ("feature", "")


def is_label_name(name: str) -> bool:
    """Whether a column's name is usual for a label."""
    return role_of(name)[0] == "label"


def is_measure(name: str) -> bool:
    """Whether a column's name is that of a size, time, count or statistic of packets."""
    return bool(first_row((*UNITS, MEASURES), name))


def is_measurement(name: str) -> bool:
    """Whether a column's name is that of a measure, or of a protocol, flag, state or service."""
    return is_measure(name) or bool(first_row((PROTOCOLS, FIELDS), name))


def is_cicflowmeter(names: Iterable[str]) -> bool:
    """Whether a table's columns are those of CICFlowMeter."""
    return {*names} >= CICFLOWMETER

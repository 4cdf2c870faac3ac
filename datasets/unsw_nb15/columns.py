# SPDX-License-Identifier: Apache-2.0
"""The columns of the UNSW-NB15 files, their spellings and the codes of their text columns."""

from __future__ import annotations

from types import MappingProxyType

PARTITION_HEADER = (
    "id,dur,proto,service,state,spkts,dpkts,sbytes,dbytes,rate,sttl,dttl,sload,dload,sloss,dloss,"
    "sinpkt,dinpkt,sjit,djit,swin,stcpb,dtcpb,dwin,tcprtt,synack,ackdat,smean,dmean,trans_depth,"
    "response_body_len,ct_srv_src,ct_state_ttl,ct_dst_ltm,ct_src_dport_ltm,ct_dst_sport_ltm,"
    "ct_dst_src_ltm,is_ftp_login,ct_ftp_cmd,ct_flw_http_mthd,ct_src_ltm,ct_srv_dst,"
    "is_sm_ips_ports,attack_cat,label"
)
"""First line of a partition file: 45 columns."""

PARTITION_COLUMNS = tuple(PARTITION_HEADER.split(","))

_RAW_HEADER = (
    "srcip,sport,dstip,dsport,proto,state,dur,sbytes,dbytes,sttl,dttl,sloss,dloss,service,"
    "sload,dload,spkts,dpkts,swin,dwin,stcpb,dtcpb,smean,dmean,trans_depth,"
    "response_body_len,sjit,djit,stime,ltime,sinpkt,dinpkt,tcprtt,synack,ackdat,"
    "is_sm_ips_ports,ct_state_ttl,ct_flw_http_mthd,is_ftp_login,ct_ftp_cmd,ct_srv_src,"
    "ct_srv_dst,ct_dst_ltm,ct_src_ltm,ct_src_dport_ltm,ct_dst_sport_ltm,ct_dst_src_ltm,"
    "attack_cat,label"
)

RAW_COLUMNS = tuple(_RAW_HEADER.split(","))
"""Columns of a raw file in order, in the partition files' spelling: 49."""

_SPELLINGS = MappingProxyType(
    {
        "smeansz": "smean",
        "dmeansz": "dmean",
        "res_bdy_len": "response_body_len",
        "sintpkt": "sinpkt",
        "dintpkt": "dinpkt",
    }
)

TEXT_COLUMNS = ("proto", "service", "state", "attack_cat", "srcip", "dstip", "sport", "dsport")
"""Columns that are not numbers in the files; ports are text, as some cells are hexadecimal."""

RAW_ONLY = ("srcip", "sport", "dstip", "dsport", "stime", "ltime")
"""Columns that only the raw files have."""

BLANK_IS_ZERO = ("ct_flw_http_mthd", "is_ftp_login", "ct_ftp_cmd")
"""Counters that the raw files leave blank where the partition files have 0."""

NORMAL = "Normal"
ATTACKS = (
    "Analysis",
    "Backdoor",
    "DoS",
    "Exploits",
    "Fuzzers",
    "Generic",
    "Reconnaissance",
    "Shellcode",
    "Worms",
)
CLASSES = ("normal", "attack")


FIRST_SYNTHETIC_ID = 900_000_001
"""Synthetic rows count their ids from here, so that no table of them passes for the real one."""


def canonical(name: str) -> str:
    """Convert a column name of either layout to the partition files' spelling."""
    plain = "".join(name.lower().split())
    return _SPELLINGS.get(plain, plain)


_IP_PROTOCOLS = (
    "ip icmp igmp ggp ipnip st2 tcp cbt egp igp bbn-rcc nvp pup argus emcon xnet chaos udp mux "
    "dcn hmp prm xns-idp trunk-1 trunk-2 leaf-1 leaf-2 rdp irtp iso-tp4 netblt mfe-nsp merit-inp "
    "sep 3pc idpr xtp ddp idpr-cmtp tp++ il ipv6 sdrp ipv6-route ipv6-frag idrp rsvp gre mhrp "
    "bna esp ah i-nlsp swipe narp mobile tlsp skip ipv6-icmp ipv6-no ipv6-opts any cftp ? "
    "sat-expak kryptolan rvd ippc ? sat-mon visa ipcv cpnx cphb wsn pvp br-sat-mon sun-nd wb-mon "
    "wb-expak iso-ip vmtp secure-vmtp vines ttp nsfnet-igp dgp tcf eigrp ospf sprite-rpc larp mtp "
    "ax.25 ipip micp aes-sp3-d etherip encap pri-enc gmtp ifmp pnni pim aris scps qnx a/n ipcomp "
    "snp compaq-peer ipx-n-ip vrrp pgm zero l2tp ddx iatp stp srp uti smp sm ptp isis fire crtp "
    "crudp sccopmce iplt sps pipe sctp fc"
)

PROTOCOL_UNASSIGNED = 134
PROTOCOL_NOT_IP = 135

PROTOCOLS = MappingProxyType(
    {name: number for number, name in enumerate(_IP_PROTOCOLS.split()) if name != "?"}
    | {"rtp": 17, "udt": 17, "unas": PROTOCOL_UNASSIGNED}
    | dict.fromkeys(("arp", "ib", "llc"), PROTOCOL_NOT_IP)
)
"""Protocol names of the files and the code of each: the IPv4 protocol number where it is below
134, 134 for every number from there on, 135 for a frame without an IP header."""

STATES = MappingProxyType(
    {
        name: code
        for code, names in enumerate(
            (
                ("int",),
                ("req",),
                ("acc",),
                ("con",),
                ("clo",),
                ("fin",),
                ("rst",),
                ("eco",),
                ("ecr",),
                ("tst", "mas", "par", "txd", "urh", "urn", "urp"),
                ("no", "-"),
            )
        )
        for name in names
    }
)
"""States of the files, ordered by how far the conversation went: 0 one direction only, 1 opening
without an answer, 2 answered, 3 both directions, 4 closing, 5 closed by FIN, 6 reset, 7 and 8 ICMP
echo and its reply, 9 another ICMP message, 10 none."""

STATE_OTHER = 11

_SERVICES = "- ftp-data ftp ssh smtp dns dhcp http pop3 snmp ssl radius irc"

SERVICES = MappingProxyType({name: code for code, name in enumerate(_SERVICES.split())})
"""Services of the files, ordered by their well-known port; 0 where none was found."""

SERVICE_OTHER = 13

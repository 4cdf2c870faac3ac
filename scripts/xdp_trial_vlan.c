// SPDX-License-Identifier: Apache-2.0
/* Tags what leaves an interface and untags what enters one, for kernels without VLAN interfaces.
 *
 * For scripts/xdp_trial.py. XDP runs before the tag is removed. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("tc/tag")
int tag(struct __sk_buff *packet) {
    bpf_skb_vlan_push(packet, bpf_htons(0x8100), 77);
    return TC_ACT_OK;
}

SEC("tc/untag")
int untag(struct __sk_buff *packet) {
    bpf_skb_vlan_pop(packet);
    return TC_ACT_OK;
}

// SPDX-License-Identifier: Apache-2.0
/*
 * In front of libbpf (LD_PRELOAD): a driver that refuses the first program, as those do that know
 * no frames in several pieces.
 */
#include <bpf/bpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/if_link.h>

typedef int create(int, int, enum bpf_attach_type, const struct bpf_link_create_opts *);

int bpf_link_create(int program, int target, enum bpf_attach_type type,
                    const struct bpf_link_create_opts *options) {
    static int asked;

    if (type == BPF_XDP && options->flags & XDP_FLAGS_DRV_MODE && !asked++)
        return -EOPNOTSUPP;
    return ((create *)dlsym(RTLD_NEXT, "bpf_link_create"))(program, target, type, options);
}

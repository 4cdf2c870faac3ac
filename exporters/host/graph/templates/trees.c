// SPDX-License-Identifier: Apache-2.0

#define TOGETHER 8u /* rows that descend at once: the loads of one hide behind those of others */

/* Sets `to` to the leaf that each row reaches, plus `a` if there is one. */
NET_INLINE void descend(spn_value *to, const spn_value *a, const uint32_t (*features)[BLOCK],
                        const struct tree *tree, const size_t rows) {
    const struct node *node = nodes + tree->first;
    const spn_value *leaf = leaves + tree->first;
    const size_t together = rows < TOGETHER ? 1 : TOGETHER;
    for (size_t i = 0; i < rows; i += together) {
        uint32_t at[TOGETHER] = {0};
        for (uint32_t level = 0; level < tree->depth; level++) {
            for (size_t k = 0; k < together; k++) {
                const struct node here = node[at[k]];
                at[k] = here.next + (uint32_t)(features[here.field][i + k] > here.most);
            }
        }
        for (size_t k = 0; k < together; k++) {
            to[i + k] = (a ? a[i + k] : 0) + leaf[at[k]];
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the interval of a value among increasing cuts. */
#ifndef N3IC_CUTS_H
#define N3IC_CUTS_H

/* Number of the `count` cuts from `cut` on that a value reaches; cuts increase. */
__intrinsic uint32_t n3ic_count_reached_cuts(uint32_t cut, uint32_t count, uint32_t value) {
    uint32_t low = 0;
    uint32_t half;

    while (count > 0) {
        half = count / 2;
        if (value >= n3ic_words[cut + low + half]) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return low;
}

#endif /* N3IC_CUTS_H */

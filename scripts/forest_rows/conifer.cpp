// SPDX-License-Identifier: Apache-2.0

// Classifies rows of two classes by the C++ of conifer in floats, which reads its trees from a
// file. FEATURES is defined on the command line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "conifer.h"

using Forest = conifer::BDT<conifer::ConiferConfiguration>;

extern "C" void *load_forest(const char *path) {
    return new Forest(std::string(path));
}

extern "C" void classify_rows(const void *forest, const float *rows, std::size_t count,
                              std::uint32_t *classes) {
    std::vector<float> row(FEATURES);
    for (std::size_t i = 0; i < count; i++) {
        std::copy_n(rows + i * FEATURES, FEATURES, row.begin());
        const auto shares = static_cast<const Forest *>(forest)->decision_function(row);
        // Of two classes, a random forest in conifer has the share of the first alone.
        classes[i] = shares[0] < 0.5f;
    }
}

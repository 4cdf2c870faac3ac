// SPDX-License-Identifier: Apache-2.0
// The build reads this file; the box has no address map.

// SPDX-License-Identifier: Apache-2.0
// The box has one plugin, so no address map stands before its registers.

// SPDX-License-Identifier: Apache-2.0
// The common parts of the programs of simulated cards: the clock and the AXI4-Stream ports of a
// Verilated top module, the signals that end a program, and waiting for frames. See
// simulator_process.py.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "verilated.h"
#if VM_TRACE
#include "verilated_fst_c.h"
#endif

namespace running {

constexpr size_t kMaxFrame = 65535;
constexpr size_t kMaxWaiting = 256; // frames; more wait in the kernel

using Bytes = std::vector<uint8_t>;

static volatile sig_atomic_t stopped = 0;

// SIGTERM, SIGINT and the end of the parent process set `stopped`.
inline void stop_on_signals() {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct sigaction action = {};
    action.sa_handler = [](int) { stopped = 1; };
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
}

// Reports to the parent process that the card works.
inline void report_ready() {
    std::printf("ready\n");
    std::fflush(stdout);
}

// Waits for frames or a signal for a number of milliseconds at most; false if the wait fails.
inline bool wait_for_frames(pollfd *ports, nfds_t count, int milliseconds) {
    for (nfds_t i = 0; i < count; ++i)
        ports[i].revents = 0;
    if (poll(ports, count, milliseconds) >= 0 || errno == EINTR)
        return true;
    std::perror("poll");
    return false;
}

// Whether a port is gone; if so, prints a message.
inline bool is_port_gone(const pollfd &port) {
    if (!(port.revents & (POLLERR | POLLHUP | POLLNVAL)))
        return false;
    std::fprintf(stderr, "the card's port is gone\n");
    return true;
}

// A Verilated top module with a stream of frames in, s_axis, and one out, m_axis.
template <typename Top> class Streams {
  protected:
    static constexpr size_t kBeatBytes = sizeof(Top::s_axis_tdata);

    // Resets the module; the caller has set all other inputs to their idle values.
    void reset() {
        top_.s_axis_tvalid = 0;
        top_.m_axis_tready = 1;
        top_.axis_resetn = 0;
        for (int i = 0; i < 40; ++i)
            clock();
        top_.axis_resetn = 1;
        for (int i = 0; i < 4; ++i)
            clock();
    }

    void clock() {
        top_.axis_aclk = 0;
        top_.eval();
        trace();
        top_.axis_aclk = 1;
        top_.eval();
        ++clocks_;
        trace();
    }

    // Writes all signals to a file from now on, if the program was built with traces: a unit of
    // time is half a clock.
    void trace_to(const char *file) {
#if VM_TRACE
        Verilated::traceEverOn(true);
        top_.trace(&waves_, 99);
        waves_.open(file);
#else
        (void)file;
#endif
    }

    // Offers the beat of a frame that begins at byte `at`; returns whether it is the last.
    bool offer_beat(const Bytes &frame, size_t at) {
        const size_t left = frame.size() - at, length = left < kBeatBytes ? left : kBeatBytes;
        std::memset(&top_.s_axis_tdata, 0, kBeatBytes);
        std::memcpy(&top_.s_axis_tdata, frame.data() + at, length);
        const uint64_t keep = length == 64 ? ~0ull : (1ull << length) - 1;
        std::memcpy(&top_.s_axis_tkeep, &keep, sizeof top_.s_axis_tkeep);
        top_.s_axis_tvalid = 1;
        top_.s_axis_tlast = left <= kBeatBytes;
        return top_.s_axis_tlast;
    }

    // Appends the leaving beat to a frame; returns whether it is the last.
    bool take_beat(Bytes &frame) {
        uint64_t keep = 0;
        std::memcpy(&keep, &top_.m_axis_tkeep, sizeof top_.m_axis_tkeep);
        const auto *bytes = reinterpret_cast<const uint8_t *>(&top_.m_axis_tdata);
        for (size_t i = 0; i < sizeof top_.m_axis_tdata; ++i)
            if (keep >> i & 1)
                frame.push_back(bytes[i]);
        return top_.m_axis_tlast;
    }

    Top top_;
    uint64_t clocks_ = 0;

  private:
    void trace() {
#if VM_TRACE
        if (waves_.isOpen())
            waves_.dump(2 * clocks_ - top_.axis_aclk + 1);
#endif
    }

#if VM_TRACE
    VerilatedFstC waves_;
#endif
};

} // namespace running

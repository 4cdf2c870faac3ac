// SPDX-License-Identifier: Apache-2.0
// The Verilated card between two TAP devices. Frames of each device pass n3ic_top and leave at the
// other one, as the reference NIC's lookup sends them; shunted frames leave at their own port.
//
// Arguments: the file descriptors of the two TAP devices, open and non-blocking.
// Lines on stdin go to the write port: "ADDRESS WORD" in hexadecimal, or "swap", to which the
// answer is "swapped". The clock runs only while frames or writes are in the card. On SIGTERM or
// SIGINT the program prints its counters and ends.
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "../tools/running.h"
#include "Vn3ic_top.h"

namespace {

using namespace running;

constexpr int kPorts = 2;

struct Frame {
    int port; // port that the frame came from
    Bytes bytes;
};

struct Write {
    bool swap;
    uint32_t address;
    uint32_t data;
};

struct Counters {
    uint64_t in[kPorts] = {};
    uint64_t out[kPorts] = {};
    uint64_t dropped = 0; // the kernel's queue of a device was full
};

class Card : Streams<Vn3ic_top> {
  public:
    explicit Card(const int *fds) : fds_(fds) {
#ifdef N3IC_WRITE_PORT
        top_.wr_en = 0;
        top_.wr_swap = 0;
#endif
        reset();
    }

    bool idle() const {
        return waiting_.empty() && inside_ == 0 && writes_.empty();
    }
    bool full() const {
        return waiting_.size() >= kMaxWaiting;
    }
    const Counters &counters() const {
        return counters_;
    }
    uint64_t clocks() const {
        return clocks_;
    }

    void add(int port, const uint8_t *bytes, size_t length) {
        waiting_.push_back({port, {bytes, bytes + length}});
        ++counters_.in[port];
    }

    void add(const Write &write) {
        writes_.push_back(write);
    }

    void step() {
        offer();
        write_next();
        top_.eval(); // tready may depend on the offered beat
        const bool is_accepted = top_.s_axis_tvalid && top_.s_axis_tready;
        collect();
        clock();
        if (is_accepted) {
            at_ += kBeatBytes;
            if (at_ >= waiting_.front().bytes.size()) {
                waiting_.pop_front();
                ++inside_;
                at_ = 0;
            }
        }
    }

  private:
    void offer() {
        top_.s_axis_tvalid = !waiting_.empty();
        if (waiting_.empty())
            return;
        const Frame &frame = waiting_.front();
        offer_beat(frame.bytes, at_);
        // The layout of the reference NIC: length, source port (one-hot), destination port.
        top_.s_axis_tuser[0] = static_cast<uint32_t>(frame.bytes.size()) | 1u << (16 + frame.port);
        top_.s_axis_tuser[1] = top_.s_axis_tuser[2] = top_.s_axis_tuser[3] = 0;
    }

    void write_next() {
#ifdef N3IC_WRITE_PORT
        top_.wr_en = 0;
        top_.wr_swap = 0;
        if (writes_.empty() || top_.wr_busy)
            return;
        const Write next = writes_.front();
        writes_.pop_front();
        top_.wr_en = !next.swap;
        top_.wr_swap = next.swap;
        top_.wr_addr = next.address;
        top_.wr_data = next.data;
        if (next.swap) {
            std::printf("swapped\n");
            std::fflush(stdout);
        }
#else
        writes_.clear();
#endif
    }

    void collect() {
        if (!top_.m_axis_tvalid || !take_beat(leaving_))
            return;
        // To the other port, or to the port of shunted frames: one bit per port.
        const uint32_t user = top_.m_axis_tuser[0];
        const int port = user >> 24 ? (user >> 24 & 1 ? 0 : 1) : (user >> 16 & 1 ? 1 : 0);
        if (write(fds_[port], leaving_.data(), leaving_.size()) < 0)
            ++counters_.dropped;
        else
            ++counters_.out[port];
        leaving_.clear();
        --inside_;
    }

    const int *fds_;
    std::deque<Frame> waiting_;
    std::deque<Write> writes_;
    Bytes leaving_;
    size_t at_ = 0;     // bytes of the first waiting frame that are in the card
    size_t inside_ = 0; // frames wholly in the card
    Counters counters_;
};

// Takes the writes of whole lines from a text; the beginning of an unfinished line stays.
void take_writes(std::string &text, Card &card) {
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
        unsigned address = 0, data = 0;
        const std::string line = text.substr(0, end);
        if (line == "swap")
            card.add({true, 0, 0});
        else if (std::sscanf(line.c_str(), "%x %x", &address, &data) == 2)
            card.add({false, address, data});
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 1 + kPorts) {
        std::fprintf(stderr, "usage: %s FD FD\n", argv[0]);
        return 2;
    }
    stop_on_signals();

    pollfd ports[kPorts + 1];
    int fds[kPorts];
    for (int i = 0; i < kPorts; ++i) {
        fds[i] = std::atoi(argv[1 + i]);
        ports[i] = {fds[i], POLLIN, 0};
    }
    ports[kPorts] = {STDIN_FILENO, POLLIN, 0};
    std::string writes;
    Card card(fds);
    report_ready();
    static uint8_t bytes[kMaxFrame];
    while (!stopped) {
        if (card.full())
            ports[kPorts].revents = 0;
        else {
            if (!wait_for_frames(ports, kPorts + 1, card.idle() ? -1 : 0))
                return 1;
            for (int i = 0; i < kPorts; ++i) {
                if (is_port_gone(ports[i]))
                    return 1;
                if (!(ports[i].revents & POLLIN))
                    continue;
                const ssize_t length = read(fds[i], bytes, sizeof bytes);
                if (length > 0)
                    card.add(i, bytes, static_cast<size_t>(length));
            }
        }
        if (ports[kPorts].revents) {
            const ssize_t length = read(STDIN_FILENO, bytes, sizeof bytes);
            if (length > 0)
                writes.append(reinterpret_cast<char *>(bytes), length);
            else
                ports[kPorts].fd = -1; // closed
            take_writes(writes, card);
        }
        for (int i = 0; i < 64 && !card.idle(); ++i)
            card.step();
    }
    const Counters &c = card.counters();
    std::printf("%llu %llu %llu %llu %llu %llu\n", (unsigned long long)c.in[0],
                (unsigned long long)c.in[1], (unsigned long long)c.out[0],
                (unsigned long long)c.out[1], (unsigned long long)c.dropped,
                (unsigned long long)card.clocks());
    return 0;
}

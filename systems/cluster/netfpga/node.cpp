// SPDX-License-Identifier: Apache-2.0
// A Verilated cluster node behind one port: a TAP device, or a socket that preserves frames.
//
// Arguments: FD, the port's open, non-blocking file descriptor; IMAGE, lines "ADDRESS WORD" in
// hexadecimal; LOSS, the fraction of leaving frames to discard on purpose; SEED of that choice;
// optionally LOG, a file that gets one line per event: "i CLOCK" when a frame's last beat went in,
// "o CLOCK BYTES" when a frame's first beat came out, "s CLOCK" when a task's words were stored.
// The clock runs while the card is busy; the millisecond tick follows the host's time.
// On SIGTERM or SIGINT the card stops and prints: frames in, frames out, frames that the kernel
// refused, frames discarded, clocks, and the card's own counters.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "Vn3ic_cluster_node.h"
#include "running.h"

namespace {

using namespace running;

constexpr int kMaxTicks = 100; // most ticks to catch up at once
constexpr int kCounters = 8;
constexpr int kStored = 6;
constexpr int kSettle = 8; // clocks to run after the card reports that it is idle

class Node : Streams<Vn3ic_cluster_node> {
  public:
    Node(int fd, double loss, unsigned seed, FILE *log)
        : fd_(fd), loss_(loss), random_(seed), log_(log) {
        top_.wr_en = 0;
        top_.tick = 0;
        reset();
    }

    bool load(FILE *image) {
        unsigned address = 0, word = 0;
        int found;
        while ((found = std::fscanf(image, "%x %x", &address, &word)) == 2) {
            top_.wr_en = 1;
            top_.wr_addr = address;
            top_.wr_data = word;
            clock();
        }
        top_.wr_en = 0;
        return found == EOF;
    }

    bool idle() const {
        return waiting_.empty() && settled_ >= kSettle;
    }
    bool full() const {
        return waiting_.size() >= kMaxWaiting;
    }

    void add(const uint8_t *bytes, size_t length) {
        waiting_.emplace_back(bytes, bytes + length);
        ++in_;
        settled_ = 0;
    }

    void tick() {
        top_.tick = 1;
        step();
        top_.tick = 0;
        settled_ = 0;
    }

    void step() {
        offer();
        top_.eval(); // tready may depend on the offered beat
        const bool taken = top_.s_axis_tvalid && top_.s_axis_tready;
        collect();
        const unsigned stored = top_.counters[kStored];
        clock();
        if (log_ && top_.counters[kStored] != stored)
            std::fprintf(log_, "s %llu\n", (unsigned long long)clocks_);
        settled_ = top_.idle ? settled_ + 1 : 0;
        if (!taken)
            return;
        at_ += kBeatBytes;
        if (at_ < waiting_.front().size())
            return;
        if (log_)
            std::fprintf(log_, "i %llu\n", (unsigned long long)clocks_);
        waiting_.pop_front();
        at_ = 0;
    }

    void print() const {
        for (const uint64_t count : {in_, out_, dropped_, thrown_, clocks_})
            std::printf("%llu ", (unsigned long long)count);
        for (int i = 0; i < kCounters; ++i)
            std::printf("%u ", top_.counters[i]);
        std::printf("\n");
    }

  private:
    void offer() {
        top_.s_axis_tvalid = !waiting_.empty();
        if (!waiting_.empty())
            offer_beat(waiting_.front(), at_);
    }

    void collect() {
        if (!top_.m_axis_tvalid)
            return;
        if (leaving_.empty())
            began_ = clocks_;
        if (!take_beat(leaving_))
            return;
        if (log_)
            std::fprintf(log_, "o %llu %zu\n", (unsigned long long)began_, leaving_.size());
        if (std::uniform_real_distribution<double>()(random_) < loss_)
            ++thrown_;
        else if (write(fd_, leaving_.data(), leaving_.size()) < 0)
            ++dropped_;
        else
            ++out_;
        leaving_.clear();
    }

    const int fd_;
    const double loss_;
    std::mt19937_64 random_;
    FILE *const log_;
    std::deque<Bytes> waiting_;
    Bytes leaving_;
    size_t at_ = 0;   // bytes of the first waiting frame that the card has taken
    int settled_ = 0; // clocks for which the card has been idle
    uint64_t in_ = 0, out_ = 0, dropped_ = 0, thrown_ = 0, began_ = 0;
};

// Counts the milliseconds since the last call.
class Milliseconds {
  public:
    int passed() {
        const auto now = std::chrono::steady_clock::now();
        const auto count =
            std::chrono::duration_cast<std::chrono::milliseconds>(now - last_).count();
        last_ += std::chrono::milliseconds(count);
        return count < kMaxTicks ? static_cast<int>(count) : kMaxTicks;
    }

  private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

} // namespace

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6) {
        std::fprintf(stderr, "usage: %s FD IMAGE LOSS SEED [LOG]\n", argv[0]);
        return 2;
    }
    stop_on_signals();

    const int fd = std::atoi(argv[1]);
    FILE *log = argc == 6 ? std::fopen(argv[5], "w") : nullptr;
    Node node(fd, std::atof(argv[3]), static_cast<unsigned>(std::atoi(argv[4])), log);
    FILE *image = std::fopen(argv[2], "r");
    if (!image || !node.load(image)) {
        std::fprintf(stderr, "%s is not an image of a node\n", argv[2]);
        return 2;
    }
    std::fclose(image);
    report_ready();

    static uint8_t bytes[kMaxFrame];
    pollfd port = {fd, POLLIN, 0};
    Milliseconds time;
    while (!stopped) {
        if (!node.full()) {
            if (!wait_for_frames(&port, 1, node.idle() ? 1 : 0) || is_port_gone(port))
                return 1;
            while (port.revents && !node.full()) {
                const ssize_t length = read(fd, bytes, sizeof bytes);
                if (length <= 0)
                    break;
                node.add(bytes, static_cast<size_t>(length));
            }
        }
        for (int ticks = time.passed(); ticks > 0; --ticks)
            node.tick();
        for (int i = 0; i < 256 && !node.idle(); ++i)
            node.step();
    }
    if (log)
        std::fclose(log);
    node.print();
    return 0;
}

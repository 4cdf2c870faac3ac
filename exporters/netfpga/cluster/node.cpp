// A Verilated node of a cluster behind one port: a TAP device, or a socket that keeps frames apart.
//
// Arguments: the port's file descriptor, open and non-blocking; the image, lines "ADDRESS WORD" in
// hexadecimal; the share of leaving frames that are thrown away on purpose, and the seed of the
// choice; optionally a log, which gets a line for each frame: "i CLOCK" its last beat went in,
// "o CLOCK BYTES" its first beat came out; and "s CLOCK" for each task whose words are stored.
// The clock runs while the card has something to do; the millisecond tick follows the host's time.
// On SIGTERM or SIGINT the card stops and prints: frames in, frames out, frames that the kernel did
// not take, frames thrown away, clocks, and the card's own counters.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "Vn3ic_cluster_node.h"
#include "verilated.h"

namespace {

constexpr size_t kBeatBytes = 32;
constexpr size_t kMaxFrame = 65535;
constexpr size_t kMaxWaiting = 256; // frames; more wait in the kernel
constexpr int kMaxTicks = 100;      // that are made up for at once
constexpr int kCounters = 8;
constexpr int kStored = 6;
constexpr int kSettle = 8; // clocks after the card says that it is idle

volatile sig_atomic_t stopped = 0;

void stop(int) {
    stopped = 1;
}

class Node {
  public:
    Node(int fd, double loss, unsigned seed, FILE *log)
        : fd_(fd), loss_(loss), random_(seed), log_(log) {
        top_.s_axis_tvalid = 0;
        top_.m_axis_tready = 1;
        top_.wr_en = 0;
        top_.tick = 0;
        top_.axis_resetn = 0;
        for (int i = 0; i < 40; ++i)
            clock();
        top_.axis_resetn = 1;
        for (int i = 0; i < 4; ++i)
            clock();
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
        top_.eval(); // tready may follow from what is offered
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
    void clock() {
        top_.axis_aclk = 0;
        top_.eval();
        top_.axis_aclk = 1;
        top_.eval();
        ++clocks_;
    }

    void offer() {
        top_.s_axis_tvalid = !waiting_.empty();
        if (waiting_.empty())
            return;
        const std::vector<uint8_t> &frame = waiting_.front();
        const size_t left = frame.size() - at_;
        const size_t length = left < kBeatBytes ? left : kBeatBytes;
        uint8_t beat[kBeatBytes] = {};
        std::memcpy(beat, frame.data() + at_, length);
        for (size_t w = 0; w < kBeatBytes / 4; ++w)
            top_.s_axis_tdata[w] = beat[4 * w] | beat[4 * w + 1] << 8 | beat[4 * w + 2] << 16 |
                                   static_cast<uint32_t>(beat[4 * w + 3]) << 24;
        top_.s_axis_tkeep = length == kBeatBytes ? ~0u : (1u << length) - 1;
        top_.s_axis_tlast = left <= kBeatBytes;
    }

    void collect() {
        if (!top_.m_axis_tvalid)
            return;
        if (leaving_.empty())
            began_ = clocks_;
        for (size_t i = 0; i < kBeatBytes; ++i)
            if (top_.m_axis_tkeep >> i & 1)
                leaving_.push_back(top_.m_axis_tdata[i / 4] >> (8 * (i % 4)) & 0xff);
        if (!top_.m_axis_tlast)
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

    Vn3ic_cluster_node top_;
    const int fd_;
    const double loss_;
    std::mt19937_64 random_;
    FILE *const log_;
    std::deque<std::vector<uint8_t>> waiting_;
    std::vector<uint8_t> leaving_;
    size_t at_ = 0;   // bytes of the first waiting frame that are in the card
    int settled_ = 0; // clocks in which it was idle
    uint64_t in_ = 0, out_ = 0, dropped_ = 0, thrown_ = 0, clocks_ = 0, began_ = 0;
};

// Ticks of a millisecond since the last call.
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
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct sigaction action = {};
    action.sa_handler = stop;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);

    const int fd = std::atoi(argv[1]);
    FILE *log = argc == 6 ? std::fopen(argv[5], "w") : nullptr;
    Node node(fd, std::atof(argv[3]), static_cast<unsigned>(std::atoi(argv[4])), log);
    FILE *image = std::fopen(argv[2], "r");
    if (!image || !node.load(image)) {
        std::fprintf(stderr, "%s is no image of a node\n", argv[2]);
        return 2;
    }
    std::fclose(image);
    std::printf("ready\n");
    std::fflush(stdout);

    static uint8_t bytes[kMaxFrame];
    pollfd port = {fd, POLLIN, 0};
    Milliseconds time;
    while (!stopped) {
        if (!node.full()) {
            const int events = poll(&port, 1, node.idle() ? 1 : 0);
            if (events < 0 && errno != EINTR) {
                std::perror("poll");
                return 1;
            }
            if (events > 0 && port.revents & (POLLERR | POLLHUP | POLLNVAL)) {
                std::fprintf(stderr, "the node's port is gone\n");
                return 1;
            }
            while (events > 0 && !node.full()) {
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

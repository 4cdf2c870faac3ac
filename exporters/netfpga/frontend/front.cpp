// SPDX-License-Identifier: Apache-2.0
// The Verilated front end, either on a TAP device or driven by a test.
//
// On a device, the arguments are FD MAC IP PORT RESEND KEY BAD [FST]: the descriptor of a TAP
// device, and the card's addresses in hexadecimal. BAD is the percentage of frames that the cable
// loses, doubles and delays, for each kind of damage and each direction. The clock runs while
// frames are in the card; otherwise it runs slowly, for the timers. On SIGTERM or SIGINT the
// program prints its counters: frames in, frames out, frames that the kernel did not accept,
// clocks, then the card's own.
//
// All signals go to the file FST. For a test, the arguments are - MAC IP PORT RESEND KEY 0 [FST],
// and stdin holds one command per line:
//   f CLOCK DAMAGED HEX  offer a frame, at this clock at the earliest
//   h CLOCKS             the receiver accepts nothing for CLOCKS clocks
//   r CLOCKS QUIET       run for CLOCKS clocks, or until nothing happened for QUIET clocks
// r is answered by lines "i FIRST LAST STALLS" for frames that were accepted, "o FIRST LAST HEX"
// for those that left, "n COUNTERS" and "= CLOCK".
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "../tools/running.h"
#include "Vn3ic_front_top.h"

namespace {

using namespace running;

constexpr size_t kLeastFrame = 60; // what a MAC delivers; TAP devices do not pad
constexpr int kIdleClocks = 256;   // clocks per millisecond while nothing happens
constexpr uint64_t kQuiet = 4096;  // clocks without a beat that make the card idle

struct Frame {
    uint64_t clock; // when it is offered, at the earliest
    bool damaged;
    Bytes bytes;
};

struct AcceptedFrame {
    uint64_t first, last, stalls;
};

struct SentFrame {
    uint64_t first, last;
    Bytes bytes;
};

class Card : Streams<Vn3ic_front_top> {
  public:
    Card(uint64_t mac, uint32_t ip, uint16_t port, uint32_t resend, uint64_t key,
         const char *waves) {
        if (waves)
            trace_to(waves);
        top_.cfg_mac = mac;
        top_.cfg_ip = ip;
        top_.cfg_port = port;
#ifdef N3IC_TCP
        top_.cfg_resend = resend;
        top_.cfg_key = key;
#else
        (void)resend, (void)key;
#endif
#ifdef N3IC_WRITE_PORT
        top_.wr_en = 0;
        top_.wr_swap = 0;
#endif
        reset();
    }

    void add(uint64_t clock, bool damaged, const uint8_t *bytes, size_t length) {
        waiting_.push_back({clock, damaged, {bytes, bytes + length}});
        if (waiting_.back().bytes.size() < kLeastFrame)
            waiting_.back().bytes.resize(kLeastFrame);
    }
    void hold(uint64_t clocks) {
        hold_until_ = clocks_ + clocks;
    }
    size_t waiting() const {
        return waiting_.size();
    }
    uint64_t clocks() const {
        return clocks_;
    }
    uint64_t quiet() const {
        return clocks_ - busy_;
    }
    std::string counters() {
        std::string text;
        const auto *words = reinterpret_cast<const uint32_t *>(&top_.counters);
        for (size_t i = 0; i < sizeof top_.counters / sizeof *words; ++i)
            text += " " + std::to_string(words[i]);
        return text;
    }

    void step() {
        offer();
        top_.m_axis_tready = clocks_ >= hold_until_;
        top_.eval(); // tready may depend on the offered beat
        const bool is_accepted = top_.s_axis_tvalid && top_.s_axis_tready;
        const bool stalled = top_.s_axis_tvalid && !top_.s_axis_tready;
        collect();
        const uint64_t now = clocks_;
        clock();
        if (stalled)
            ++stalls_;
        if (!is_accepted)
            return;
        busy_ = now;
        if (at_ == 0)
            first_ = now;
        at_ += kBeatBytes;
        if (at_ >= waiting_.front().bytes.size()) {
            accepted_frames_.push_back({first_, now, stalls_});
            waiting_.pop_front();
            at_ = stalls_ = 0;
        }
    }

    std::vector<AcceptedFrame> accepted_frames_;
    std::vector<SentFrame> sent_frames_;

  private:
    void offer() {
        top_.s_axis_tvalid = !waiting_.empty() && (at_ || clocks_ >= waiting_.front().clock);
        if (!top_.s_axis_tvalid)
            return;
        const Frame &frame = waiting_.front();
        top_.s_axis_tuser = offer_beat(frame.bytes, at_) && frame.damaged;
    }

    void collect() {
        if (!top_.m_axis_tvalid || !top_.m_axis_tready)
            return;
        busy_ = clocks_;
        if (leaving_.empty())
            leaving_first_ = clocks_;
        if (!take_beat(leaving_))
            return;
        sent_frames_.push_back({leaving_first_, clocks_, leaving_});
        leaving_.clear();
    }

    std::deque<Frame> waiting_;
    Bytes leaving_;
    size_t at_ = 0; // bytes of the first waiting frame that the card has taken
    uint64_t hold_until_ = 0, busy_ = 0, first_ = 0, stalls_ = 0, leaving_first_ = 0;
};

// A cable that loses, doubles and delays a share of the frames, the same frames in each run.
class Cable {
  public:
    explicit Cable(unsigned percent) : percent_(percent) {}

    template <typename Deliver> void pass(Bytes bytes, Deliver deliver) {
        const unsigned dice = static_cast<unsigned>(random_() % 100);
        if (dice < percent_)
            return;
        if (dice < 2 * percent_)
            deliver(bytes);
        if (dice >= 2 * percent_ && dice < 3 * percent_) {
            late_.push_back(std::move(bytes));
            return;
        }
        deliver(bytes);
        if (!late_.empty() && random_() % 2)
            flush(deliver);
    }

    template <typename Deliver> void flush(Deliver deliver) {
        while (!late_.empty()) {
            deliver(late_.front());
            late_.pop_front();
        }
    }

  private:
    unsigned percent_;
    std::mt19937 random_{1};
    std::deque<Bytes> late_;
};

Bytes from_hex(const std::string &text) {
    Bytes bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2)
        bytes.push_back(static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
    return bytes;
}

void print_events(Card &card) {
    for (const AcceptedFrame &t : card.accepted_frames_)
        std::printf("i %llu %llu %llu\n", (unsigned long long)t.first, (unsigned long long)t.last,
                    (unsigned long long)t.stalls);
    for (const SentFrame &l : card.sent_frames_) {
        std::printf("o %llu %llu ", (unsigned long long)l.first, (unsigned long long)l.last);
        for (const uint8_t byte : l.bytes)
            std::printf("%02x", byte);
        std::printf("\n");
    }
    card.accepted_frames_.clear();
    card.sent_frames_.clear();
    std::printf("n%s\n= %llu\n", card.counters().c_str(), (unsigned long long)card.clocks());
    std::fflush(stdout);
}

int run_commands(Card &card) {
    std::string line;
    while (!stopped && std::getline(std::cin, line)) {
        std::istringstream words(line);
        char what = 0;
        uint64_t number = 0, more = 0;
        std::string hex;
        words >> what >> number >> more >> hex;
        if (what == 'f') {
            const Bytes bytes = from_hex(hex);
            card.add(number, more, bytes.data(), bytes.size());
        } else if (what == 'h') {
            card.hold(number);
        } else if (what == 'r') {
            const uint64_t begin = card.clocks(), end = begin + number;
            while (card.clocks() < end &&
                   (card.waiting() || card.clocks() - begin < more || card.quiet() < more))
                card.step();
            print_events(card);
        }
    }
    return 0;
}

int relay_frames(Card &card, int fd, unsigned bad) {
    uint64_t in = 0, out = 0, dropped = 0;
    Cable there(bad), back(bad);
    const auto arrive = [&](const Bytes &frame) { card.add(0, false, frame.data(), frame.size()); };
    const auto leave = [&](const Bytes &frame) {
        write(fd, frame.data(), frame.size()) < 0 ? ++dropped : ++out;
    };
    pollfd port = {fd, POLLIN, 0};
    static uint8_t bytes[kMaxFrame];
    while (!stopped) {
        const bool idle = card.waiting() == 0 && card.quiet() > kQuiet;
        if (card.waiting() < kMaxWaiting) {
            if (!wait_for_frames(&port, 1, idle ? 1 : 0) || is_port_gone(port))
                return 1;
            if (port.revents & POLLIN) {
                const ssize_t length = read(fd, bytes, sizeof bytes);
                if (length > 0) {
                    there.pass({bytes, bytes + length}, arrive);
                    ++in;
                }
            } else if (idle) {
                there.flush(arrive);
                back.flush(leave);
            }
        }
        for (int i = 0; i < kIdleClocks; ++i)
            card.step();
        for (const SentFrame &l : card.sent_frames_)
            back.pass(l.bytes, leave);
        card.sent_frames_.clear();
        card.accepted_frames_.clear();
    }
    std::printf("%llu %llu %llu %llu%s\n", (unsigned long long)in, (unsigned long long)out,
                (unsigned long long)dropped, (unsigned long long)card.clocks(),
                card.counters().c_str());
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 8 && argc != 9) {
        std::fprintf(stderr, "usage: %s FD|- MAC IP PORT RESEND KEY BAD [FST]\n", argv[0]);
        return 2;
    }
    stop_on_signals();
    const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 16); };
    Card card(number(2), static_cast<uint32_t>(number(3)), static_cast<uint16_t>(number(4)),
              static_cast<uint32_t>(number(5)), number(6), argc == 9 ? argv[8] : nullptr);
    report_ready();
    if (std::strcmp(argv[1], "-") == 0)
        return run_commands(card);
    return relay_frames(card, std::atoi(argv[1]), static_cast<unsigned>(number(7)));
}

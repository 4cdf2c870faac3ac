// Network tomography in ns-3: probe delays and queue occupancies of a small fat tree.
//
// Two pods of two ToR and two aggregation switches, two core switches, eight servers a ToR.
// TCP incast loads the network; every server but the first sends one small UDP probe to the
// first in every interval. For each interval the program writes one record to standard output:
// the one-way delay of each probe and the occupancy of the output queues on the probes' paths.
//
// The stream is one line of JSON (all options, the queues, the path of each probe), a newline,
// then per interval little-endian uint32 values:
//   probes   x  one-way delay in ns, 0xffffffff where it had not arrived when its interval ended
//   queues   x  occupancy in bytes when the interval's last probe has been sent
// Occupancy counts what waits, not the frame on the wire.

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace ns3;

namespace
{

constexpr uint32_t kPods = 2;
constexpr uint32_t kTorsPerPod = 2;
constexpr uint32_t kAggsPerPod = 2;
constexpr uint32_t kServersPerTor = 8;
constexpr uint32_t kTors = kPods * kTorsPerPod;
constexpr uint32_t kAggs = kPods * kAggsPerPod;
constexpr uint32_t kCores = 2;
constexpr uint32_t kServers = kTors * kServersPerTor;
constexpr uint32_t kProbes = kServers - 1;
constexpr uint32_t kMissing = 0xffffffff;
constexpr uint32_t kMss = 1460;
constexpr uint32_t kFrame = 1502; // a full segment with TCP, IP and PPP headers
constexpr uint16_t kDataPort = 5000;
constexpr uint16_t kProbePort = 9000;
constexpr uint16_t kFirstProbeSource = 20000;
constexpr uint8_t kUdp = 17;
// Share of the interval within which the probes are sent, and at which the queues are sampled.
constexpr double kSampledAt = 0.05;

struct Options
{
    double duration = 10;   // s that are recorded
    double warmup = 1;      // s before the first record
    double link = 100;      // Mb/s of every link
    double load = 0.55;     // mean offered load of the uplinks of the ToR switches
    uint32_t incast = 16;   // servers that answer one request at once
    uint32_t queue = 64;    // full frames that an output queue holds
    double size = 80000;    // mean bytes of one answer (exponential)
    double otherPod = 0.8;  // share of the answers that come from the other pod
    double otherTor = 0.15; // share that come from the other ToR of the same pod
    double focus = 2;       // requests of the first server, relative to another server's
    double interval = 0;    // ms between probes; 0 for 10 ms at 100 Mb/s and in proportion
    double delay = 2;       // us of propagation of every link
    uint32_t seed = 1;
    uint32_t run = 1;
};

// A switch or server as the routing sees it.
struct Place
{
    enum Level
    {
        SERVER,
        TOR,
        AGG,
        CORE
    } level;
    uint32_t index;

    uint32_t Pod() const
    {
        return level == TOR ? index / kTorsPerPod : index / kAggsPerPod;
    }

    uint32_t Id() const // distinct for every place
    {
        return (uint32_t(level) << 16) | index;
    }

    std::string Name() const
    {
        static const std::array<const char*, 4> words{"server", "tor", "agg", "core"};
        return words[level] + std::to_string(index);
    }
};

struct Flow
{
    uint32_t source; // server
    uint32_t target; // server
    uint8_t protocol;
    uint16_t sourcePort;
    uint16_t targetPort;
};

// The choice of an ECMP switch: a hash of the five-tuple and the switch (Murmur3's finalizer).
uint32_t Hash(const Flow& flow, uint32_t salt)
{
    uint64_t h = (uint64_t(flow.sourcePort) << 48) | (uint64_t(flow.targetPort) << 32) |
                 (uint64_t(flow.source) << 16) | (uint64_t(flow.target) << 8) | flow.protocol;
    h ^= uint64_t(salt) * 0x9e3779b97f4a7c15ULL;
    for (uint64_t factor : {0xff51afd7ed558ccdULL, 0xc4ceb9fe1a85ec53ULL})
    {
        h ^= h >> 33;
        h *= factor;
    }
    return uint32_t(h >> 33);
}

// Where a flow goes from here; the same function routes packets and makes the path table.
Place NextHop(const Place& here, const Flow& flow)
{
    const uint32_t tor = flow.target / kServersPerTor;
    const uint32_t pod = tor / kTorsPerPod;
    const uint32_t h = Hash(flow, here.Id());
    switch (here.level)
    {
    case Place::SERVER:
        return {Place::TOR, here.index / kServersPerTor};
    case Place::TOR:
        if (here.index == tor)
        {
            return {Place::SERVER, flow.target};
        }
        return {Place::AGG, here.Pod() * kAggsPerPod + h % kAggsPerPod};
    case Place::AGG:
        if (here.Pod() == pod)
        {
            return {Place::TOR, tor};
        }
        return {Place::CORE, h % kCores};
    default:
        return {Place::AGG, pod * kAggsPerPod + h % kAggsPerPod};
    }
}

// The output queues from a server's ToR on, in order.
std::vector<std::string> Path(const Flow& flow)
{
    std::vector<std::string> out;
    Place here = NextHop({Place::SERVER, flow.source}, flow);
    while (here.level != Place::SERVER)
    {
        const Place next = NextHop(here, flow);
        out.push_back(here.Name() + "_" + next.Name());
        here = next;
    }
    return out;
}

Ipv4Address AddressOf(uint32_t server)
{
    return Ipv4Address(0x0a000001 + server);
}

// Per-flow ECMP over the tree, without routing tables.
class TreeRouting : public Ipv4RoutingProtocol
{
  public:
    explicit TreeRouting(Place here) : m_here(here)
    {
    }

    void AddPort(const Place& neighbour, Ptr<NetDevice> device)
    {
        auto route = Create<Ipv4Route>();
        route->SetGateway(Ipv4Address::GetAny());
        route->SetOutputDevice(device);
        if (m_here.level == Place::SERVER)
        {
            route->SetSource(AddressOf(m_here.index));
        }
        m_routes.emplace_back(neighbour.Id(), route);
    }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header&, Ptr<NetDevice>,
                               Socket::SocketErrno& error) override
    {
        error = Socket::ERROR_NOTERROR;
        return m_routes.front().second; // only servers originate packets, over their one link
    }

    bool RouteInput(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice> device,
                    UnicastForwardCallback forward, MulticastForwardCallback,
                    LocalDeliverCallback deliver, ErrorCallback) override
    {
        if (m_here.level == Place::SERVER)
        {
            deliver(packet, header, m_ipv4->GetInterfaceForDevice(device));
            return true;
        }
        uint8_t ports[4] = {};
        packet->CopyData(ports, 4);
        const Flow flow{header.GetSource().Get() - AddressOf(0).Get(),
                        header.GetDestination().Get() - AddressOf(0).Get(), header.GetProtocol(),
                        uint16_t(ports[0] << 8 | ports[1]), uint16_t(ports[2] << 8 | ports[3])};
        const uint32_t next = NextHop(m_here, flow).Id();
        for (const auto& [id, route] : m_routes)
        {
            if (id == next)
            {
                forward(route, packet, header);
                return true;
            }
        }
        NS_FATAL_ERROR("no port from " << m_here.Name());
        return false;
    }

    void SetIpv4(Ptr<Ipv4> ipv4) override
    {
        m_ipv4 = ipv4;
    }

    void NotifyInterfaceUp(uint32_t) override
    {
    }

    void NotifyInterfaceDown(uint32_t) override
    {
    }

    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override
    {
    }

    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override
    {
    }

    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override
    {
    }

  private:
    Place m_here;
    Ptr<Ipv4> m_ipv4;
    std::vector<std::pair<uint32_t, Ptr<Ipv4Route>>> m_routes;
};

class Network
{
  public:
    explicit Network(const Options& options)
        : m_options(options), m_interval(NanoSeconds(int64_t(options.interval * 1e6))),
          m_uniform(CreateObject<UniformRandomVariable>()),
          m_offset(CreateObject<UniformRandomVariable>()),
          m_exponential(CreateObject<ExponentialRandomVariable>())
    {
        m_uniform->SetStream(1);
        m_exponential->SetStream(2);
        m_offset->SetStream(3);
        Build();
        MakePaths();
    }

    void Run()
    {
        WriteHeader();
        for (uint32_t server = 0; server < kServers; ++server)
        {
            Listen(server);
            ScheduleRequest(server);
        }
        OpenProbes();
        Simulator::Schedule(Seconds(m_options.warmup), &Network::StartInterval, this);
        Simulator::Run();
        Simulator::Destroy();
    }

  private:
    // --- the network ----------------------------------------------------------------------

    Ptr<TreeRouting> AddNode(const Place& place)
    {
        auto node = CreateObject<Node>();
        m_nodes.push_back(node);
        InternetStackHelper stack;
        stack.SetIpv6StackInstall(false);
        stack.Install(node);
        auto routing = Create<TreeRouting>(place);
        node->GetObject<Ipv4>()->SetRoutingProtocol(routing);
        return routing;
    }

    void Build()
    {
        std::array<std::vector<Ptr<TreeRouting>>, 4> routing;
        std::array<std::vector<Ptr<Node>>, 4> nodes;
        const std::array<uint32_t, 4> counts{kServers, kTors, kAggs, kCores};
        for (uint32_t level = 0; level < counts.size(); ++level)
        {
            for (uint32_t i = 0; i < counts[level]; ++i)
            {
                routing[level].push_back(AddNode({Place::Level(level), i}));
                nodes[level].push_back(m_nodes.back());
            }
        }
        uint32_t links = 0;
        const auto connect = [&](const Place& low, const Place& high) {
            PointToPointHelper wire;
            wire.SetDeviceAttribute("DataRate",
                                    DataRateValue(DataRate(uint64_t(m_options.link * 1e6))));
            wire.SetChannelAttribute("Delay",
                                     TimeValue(NanoSeconds(int64_t(m_options.delay * 1000))));
            wire.SetQueue("ns3::DropTailQueue", "MaxSize",
                          QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, Capacity())));
            auto devices = wire.Install(nodes[low.level][low.index], nodes[high.level][high.index]);
            const std::array<Place, 2> ends{low, high};
            for (uint32_t side = 0; side < 2; ++side)
            {
                const Place& here = ends[side];
                auto device = DynamicCast<PointToPointNetDevice>(devices.Get(side));
                auto ipv4 = device->GetNode()->GetObject<Ipv4>();
                const uint32_t index = ipv4->AddInterface(device);
                // Switches never answer, but ns-3 wants an address on each interface.
                const auto address = here.level == Place::SERVER
                                         ? AddressOf(here.index)
                                         : Ipv4Address(0x0a800000 + 2 * links + side);
                ipv4->AddAddress(index, Ipv4InterfaceAddress(address, Ipv4Mask("255.0.0.0")));
                ipv4->SetUp(index);
                if (here.level == Place::SERVER)
                {
                    // A server holds its own packets back; only switches drop.
                    device->GetQueue()->SetMaxSize(QueueSize("10000p"));
                }
                else
                {
                    m_devices[here.Name() + "_" + ends[1 - side].Name()] = device;
                }
                routing[here.level][here.index]->AddPort(ends[1 - side], device);
            }
            ++links;
        };
        for (uint32_t server = 0; server < kServers; ++server)
        {
            connect({Place::SERVER, server}, {Place::TOR, server / kServersPerTor});
        }
        for (uint32_t pod = 0; pod < kPods; ++pod)
        {
            for (uint32_t tor = 0; tor < kTorsPerPod; ++tor)
            {
                for (uint32_t agg = 0; agg < kAggsPerPod; ++agg)
                {
                    connect({Place::TOR, pod * kTorsPerPod + tor},
                            {Place::AGG, pod * kAggsPerPod + agg});
                }
            }
        }
        for (uint32_t agg = 0; agg < kAggs; ++agg)
        {
            for (uint32_t core = 0; core < kCores; ++core)
            {
                connect({Place::AGG, agg}, {Place::CORE, core});
            }
        }
    }

    uint32_t Capacity() const
    {
        return m_options.queue * kFrame;
    }

    // --- the probes -----------------------------------------------------------------------

    // Every server's probe takes, of the paths from its rack, the next in turn; the source port
    // is the first whose hashes lead along it. The first probe of each path is kept.
    void MakePaths()
    {
        std::map<std::vector<std::string>, uint32_t> seen;
        for (uint32_t server = 1; server < kServers; ++server)
        {
            std::map<std::vector<std::string>, uint16_t> found;
            for (uint16_t port = kFirstProbeSource; port < kFirstProbeSource + 1000; ++port)
            {
                found.emplace(Path({server, 0, kUdp, port, kProbePort}), port);
            }
            const auto choice = std::next(found.begin(), (server % kServersPerTor) % found.size());
            m_probePaths.push_back(choice->first);
            m_probePorts.push_back(choice->second);
            m_kept.push_back(seen.emplace(choice->first, server).second);
            for (const auto& name : choice->first)
            {
                if (std::find(m_queues.begin(), m_queues.end(), name) == m_queues.end())
                {
                    m_queues.push_back(name);
                }
            }
        }
    }

    void OpenProbes()
    {
        m_sent.assign(kProbes, Time());
        m_arrived.assign(kProbes, kMissing);
        auto sink = Socket::CreateSocket(m_nodes[0], UdpSocketFactory::GetTypeId());
        sink->Bind(InetSocketAddress(Ipv4Address::GetAny(), kProbePort));
        sink->SetRecvCallback(MakeCallback(&Network::ReceiveProbe, this));
        for (uint32_t probe = 0; probe < kProbes; ++probe)
        {
            auto socket = Socket::CreateSocket(m_nodes[probe + 1], UdpSocketFactory::GetTypeId());
            socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), m_probePorts[probe]));
            socket->Connect(InetSocketAddress(AddressOf(0), kProbePort));
            socket->ShutdownRecv();
            m_probes.push_back(socket);
        }
    }

    void SendProbe(uint32_t probe)
    {
        std::array<uint32_t, 2> payload{probe, m_index};
        m_sent[probe] = Simulator::Now();
        m_probes[probe]->Send(reinterpret_cast<uint8_t*>(payload.data()), sizeof(payload), 0);
    }

    void ReceiveProbe(Ptr<Socket> socket)
    {
        while (auto packet = socket->Recv())
        {
            std::array<uint32_t, 2> payload{};
            packet->CopyData(reinterpret_cast<uint8_t*>(payload.data()), sizeof(payload));
            if (payload[1] == m_index) // a probe of an earlier interval is late: missing
            {
                m_arrived[payload[0]] =
                    uint32_t((Simulator::Now() - m_sent[payload[0]]).GetNanoSeconds());
            }
        }
    }

    // --- the traffic ----------------------------------------------------------------------

    void Listen(uint32_t server)
    {
        auto socket = Socket::CreateSocket(m_nodes[server], TcpSocketFactory::GetTypeId());
        socket->Bind(InetSocketAddress(Ipv4Address::GetAny(), kDataPort));
        socket->Listen();
        socket->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                  MakeCallback(&Network::Accept, this));
        m_listeners.push_back(socket);
    }

    void Accept(Ptr<Socket> socket, const Address&)
    {
        socket->SetRecvCallback(MakeCallback(&Network::Drain, this));
        const auto close = MakeCallback(&Network::Close, this);
        socket->SetCloseCallbacks(close, close); // an accepted socket left open is never freed
    }

    void Drain(Ptr<Socket> socket)
    {
        while (socket->Recv())
        {
        }
    }

    void Close(Ptr<Socket> socket)
    {
        socket->Close();
    }

    // Requests of one server per second, so that the ToR uplinks carry the load on average.
    double RequestRate(uint32_t server) const
    {
        const double crossing = m_options.otherPod + m_options.otherTor;
        const double frames = m_options.size * kFrame / kMss;
        const double bits = 8 * frames * m_options.incast * crossing;
        const double uplinks = kTors * kAggsPerPod * m_options.link * 1e6;
        const double weights = kServers - 1 + m_options.focus;
        return m_options.load * uplinks / bits * (server == 0 ? m_options.focus : 1) / weights;
    }

    void ScheduleRequest(uint32_t server)
    {
        const double rate = RequestRate(server);
        if (rate > 0)
        {
            Simulator::Schedule(Seconds(m_exponential->GetValue(1 / rate, 0)), &Network::Request,
                                this, server);
        }
    }

    // A request is answered by `incast` servers at once, each over a connection of its own.
    void Request(uint32_t server)
    {
        for (uint32_t i = 0; i < m_options.incast; ++i)
        {
            const double bytes = std::max(1.0, m_exponential->GetValue(m_options.size, 0));
            Answer(Responder(server), server, uint32_t(std::min(bytes, 1e9)));
        }
        ScheduleRequest(server);
    }

    uint32_t Responder(uint32_t server)
    {
        const uint32_t tor = server / kServersPerTor;
        const uint32_t pod = tor / kTorsPerPod;
        const double where = m_uniform->GetValue(0, 1);
        uint32_t from = 0;
        uint32_t count = 0;
        if (where < m_options.otherPod)
        {
            from = (1 - pod) * kTorsPerPod * kServersPerTor;
            count = kTorsPerPod * kServersPerTor;
        }
        else if (where < m_options.otherPod + m_options.otherTor)
        {
            from = (tor ^ 1) * kServersPerTor;
            count = kServersPerTor;
        }
        else
        {
            from = tor * kServersPerTor;
            count = kServersPerTor;
        }
        uint32_t choice = server;
        while (choice == server)
        {
            choice = from + m_uniform->GetInteger(0, count - 1);
        }
        return choice;
    }

    void Answer(uint32_t from, uint32_t to, uint32_t bytes)
    {
        auto socket = Socket::CreateSocket(m_nodes[from], TcpSocketFactory::GetTypeId());
        if (socket->Bind() != 0)
        {
            return; // all ports are taken: the load is beyond what the servers can hold
        }
        auto left = std::make_shared<uint32_t>(bytes);
        const auto fill = [left](Ptr<Socket> s, uint32_t) {
            while (*left > 0)
            {
                const int sent = s->Send(Create<Packet>(std::min(*left, 8 * kMss)));
                if (sent <= 0)
                {
                    return;
                }
                *left -= sent;
            }
            s->SetSendCallback(MakeNullCallback<void, Ptr<Socket>, uint32_t>());
            s->Close();
        };
        socket->SetSendCallback(Callback<void, Ptr<Socket>, uint32_t>(fill));
        socket->Connect(InetSocketAddress(AddressOf(to), kDataPort));
    }

    // --- the record -----------------------------------------------------------------------

    void StartInterval()
    {
        const auto interval = double(m_interval.GetNanoSeconds());
        m_arrived.assign(kProbes, kMissing);
        for (uint32_t probe = 0; probe < kProbes; ++probe)
        {
            // Servers are not in step: each sends early in the interval.
            const double offset = m_offset->GetValue(0, kSampledAt) * interval;
            Simulator::Schedule(NanoSeconds(int64_t(offset)), &Network::SendProbe, this, probe);
        }
        Simulator::Schedule(NanoSeconds(int64_t(kSampledAt * interval)), &Network::Sample, this);
        Simulator::Schedule(m_interval, &Network::EndInterval, this);
    }

    void Sample()
    {
        m_occupied.clear();
        for (const auto& name : m_queues)
        {
            m_occupied.push_back(m_devices.at(name)->GetQueue()->GetNBytes());
        }
    }

    void EndInterval()
    {
        std::vector<uint32_t> record(m_arrived);
        record.insert(record.end(), m_occupied.begin(), m_occupied.end());
        std::string bytes;
        for (uint32_t value : record)
        {
            for (uint32_t shift = 0; shift < 32; shift += 8)
            {
                bytes.push_back(char(value >> shift & 0xff));
            }
        }
        std::cout.write(bytes.data(), std::streamsize(bytes.size()));
        ++m_index;
        const uint32_t total = Intervals();
        if (m_index % std::max(1u, total / 200) == 0 || m_index == total)
        {
            std::cout.flush();
            std::cerr << "interval " << m_index << "/" << total << std::endl;
        }
        if (m_index == total || !std::cout)
        {
            Simulator::Stop();
            return;
        }
        StartInterval();
    }

    uint32_t Intervals() const
    {
        return std::max(
            1u, uint32_t(m_options.duration * 1e9 / double(m_interval.GetNanoSeconds()) + 0.5));
    }

    void WriteHeader() const
    {
        std::ostringstream out;
        out << "{\"stream\": \"n3ic-tomography-1\", \"intervals\": " << Intervals()
            << ", \"duration_s\": " << m_options.duration << ", \"warmup_s\": " << m_options.warmup
            << ", \"link_mbps\": " << m_options.link << ", \"load\": " << m_options.load
            << ", \"incast\": " << m_options.incast << ", \"queue_packets\": " << m_options.queue
            << ", \"queue_bytes\": " << Capacity() << ", \"packet_bytes\": " << kFrame
            << ", \"answer_bytes\": " << m_options.size << ", \"other_pod\": " << m_options.otherPod
            << ", \"other_tor\": " << m_options.otherTor << ", \"focus\": " << m_options.focus
            << ", \"interval_ns\": " << m_interval.GetNanoSeconds()
            << ", \"propagation_us\": " << m_options.delay << ", \"seed\": " << m_options.seed
            << ", \"run\": " << m_options.run << ", \"sampled_at\": " << kSampledAt
            << ", \"queues\": [";
        for (std::size_t i = 0; i < m_queues.size(); ++i)
        {
            out << (i ? ", " : "") << '"' << m_queues[i] << '"';
        }
        out << "], \"probes\": [";
        for (uint32_t probe = 0; probe < kProbes; ++probe)
        {
            out << (probe ? ", " : "") << "{\"server\": " << probe + 1
                << ", \"source_port\": " << m_probePorts[probe]
                << ", \"kept\": " << (m_kept[probe] ? "true" : "false") << ", \"path\": [";
            for (std::size_t i = 0; i < m_probePaths[probe].size(); ++i)
            {
                out << (i ? ", " : "") << '"' << m_probePaths[probe][i] << '"';
            }
            out << "]}";
        }
        out << "]}\n";
        std::cout << out.str();
    }

    Options m_options;
    Time m_interval;
    Ptr<UniformRandomVariable> m_uniform;
    Ptr<UniformRandomVariable> m_offset;
    Ptr<ExponentialRandomVariable> m_exponential;
    std::vector<Ptr<Node>> m_nodes; // the servers first
    std::map<std::string, Ptr<PointToPointNetDevice>> m_devices;
    std::vector<std::string> m_queues; // those on the probes' paths
    std::vector<uint32_t> m_occupied;
    std::vector<std::vector<std::string>> m_probePaths;
    std::vector<uint16_t> m_probePorts;
    std::vector<bool> m_kept;
    std::vector<Ptr<Socket>> m_probes;
    std::vector<Ptr<Socket>> m_listeners;
    std::vector<Time> m_sent;
    std::vector<uint32_t> m_arrived;
    uint32_t m_index = 0;
};

bool Valid(const Options& o)
{
    return o.duration > 0 && o.warmup >= 0 && o.link > 0 && o.load >= 0 && o.load < 2 &&
           o.incast >= 1 && o.queue >= 1 && o.queue <= 1000000 && o.size >= 1 && o.otherPod >= 0 &&
           o.otherTor >= 0 && o.otherPod + o.otherTor <= 1 + 1e-9 && o.otherPod + o.otherTor > 0 &&
           o.focus >= 0 && o.interval > 0 && o.interval < 4000 && o.delay >= 0 && o.seed >= 1 &&
           o.run >= 1;
}

} // namespace

int main(int argc, char* argv[])
{
    Options o;
    CommandLine cmd(__FILE__);
    cmd.AddValue("duration", "Seconds that are recorded", o.duration);
    cmd.AddValue("warmup", "Seconds before the first record", o.warmup);
    cmd.AddValue("link", "Speed of every link, Mb/s", o.link);
    cmd.AddValue("load", "Mean offered load of the ToR uplinks, 0 to 2", o.load);
    cmd.AddValue("incast", "Servers that answer one request at once", o.incast);
    cmd.AddValue("queue", "Full packets that an output queue holds", o.queue);
    cmd.AddValue("size", "Mean bytes of one answer (exponential)", o.size);
    cmd.AddValue("other-pod", "Share of the answers from the other pod", o.otherPod);
    cmd.AddValue("other-tor", "Share of the answers from the pod's other ToR", o.otherTor);
    cmd.AddValue("focus", "Requests of the first server relative to another's", o.focus);
    cmd.AddValue("interval", "Milliseconds between probes; 0: 10 at 100 Mb/s", o.interval);
    cmd.AddValue("delay", "Propagation of every link, us", o.delay);
    cmd.AddValue("seed", "Seed of ns-3's generator", o.seed);
    cmd.AddValue("run", "Substream of the seed", o.run);
    cmd.Parse(argc, argv);
    if (o.interval == 0 && o.link > 0)
    {
        o.interval = 1000 / o.link;
    }
    if (!Valid(o))
    {
        std::cerr << "an option is out of range; see --help" << std::endl;
        return 2;
    }

    // Times of the TCP stack in proportion to the link, as in a data centre.
    const double unit = 100 / o.link;
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kMss));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(256 * 1024));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(256 * 1024));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(Seconds(0.1 * unit)));
    Config::SetDefault("ns3::TcpSocket::ConnCount", UintegerValue(100));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(0.05 * unit)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(Seconds(0.001 * unit)));
    Config::SetDefault("ns3::RttEstimator::InitialEstimation", TimeValue(Seconds(0.05 * unit)));
    // ns-3 holds closed sockets for twice this time; seconds, not less than a few timeouts.
    Config::SetDefault("ns3::TcpSocketBase::MaxSegLifetime", DoubleValue(0.5 * unit));
    RngSeedManager::SetSeed(o.seed);
    RngSeedManager::SetRun(o.run);
    Simulator::SetScheduler(ObjectFactory("ns3::HeapScheduler"));
    Network(o).Run();
    return std::cout ? 0 : 1;
}

//! Attributes that travel to programs and back (E24): by VLAN tags and Geneve options of a native
//! program, which is this process, and by VLAN tags of a bridge.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use io::port::{Interface, PortSpec, TransmitBurst};

use crate::externals::alone;
use crate::net::{Host, Io, Network, wait_until};

/// Sends echo requests in VLAN 7 to the outer host.
const PING_IN_VLAN: &str = r"
import socket, struct
def checksum(data):
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return struct.pack('!H', total ^ 0xffff)
icmp = struct.pack('!BBHHH', 8, 0, 0, 7777, 1) + b'tagged' * 200
icmp = icmp[:2] + checksum(icmp) + icmp[4:]
ip = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(icmp), 1, 0, 64, 1, 0)
ip += socket.inet_aton('10.7.0.1') + socket.inet_aton('10.7.0.2')
frame = bytes.fromhex('020700000002020700000001810000070800') + ip[:10] + checksum(ip) + ip[12:] + icmp
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(('eth0', 0))
for _ in range(5):
    s.send(frame)
";

/// The layout of the policy below: the program's class and hit, then the firewall's attribute.
const HIT: u32 = 1 << 3;
const SAFE: u32 = 1 << 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    Vlan,
    Geneve,
}

/// Offsets of the option's data in a Geneve frame.
const DATA: std::ops::Range<usize> = 54..58;

impl Carrier {
    /// Returns the tag of a frame, and its packet.
    fn take(self, frame: &[u8]) -> (u32, Vec<u8>) {
        match self {
            Carrier::Vlan => {
                assert!([[0x81, 0], [0x88, 0xa8]].contains(&[frame[12], frame[13]]), "{frame:x?}");
                assert_eq!(frame[12] == 0x88, frame[16..18] == [0x81, 0], "a tag of its own: {frame:x?}");
                (
                    u32::from(frame[14] & 0xf) << 8 | u32::from(frame[15]),
                    [&frame[..12], &frame[16..]].concat(),
                )
            }
            Carrier::Geneve => {
                assert_eq!(frame[36..38], 6081_u16.to_be_bytes(), "{frame:x?}");
                assert_eq!(
                    frame[42..DATA.start],
                    [2, 0, 0x65, 0x58, 0, 0, 0, 0, 0xff, 0x52, 1, 1],
                    "{frame:x?}"
                );
                let tag = u32::from_be_bytes(frame[DATA].try_into().unwrap());
                (tag, frame[DATA.end..].to_vec())
            }
        }
    }

    /// Returns the frame with another tag, as the program sends it by its other port.
    fn put(self, frame: &[u8], tag: u32) -> Vec<u8> {
        let mut frame = frame.to_vec();
        match self {
            Carrier::Vlan => frame[14..16].copy_from_slice(&(tag as u16).to_be_bytes()),
            Carrier::Geneve => {
                frame[DATA].copy_from_slice(&tag.to_be_bytes());
                // The ends of the other side: 100.127.0.1 and 2 are inside, 5 and 6 outside.
                let (own, program) = if frame[33] == 2 { (5, 6) } else { (1, 2) };
                (frame[29], frame[33], frame[5], frame[11]) = (program, own, own, program);
            }
        }
        frame
    }

    /// Returns a tag with a bit that no attribute has.
    fn bad(self) -> u32 {
        if self == Carrier::Vlan { 0x800 } else { 0x8000_0000 }
    }
}

/// Number of packets by the tag and its side of origin.
type SeenTags = Arc<Mutex<BTreeMap<(&'static str, u32), u32>>>;

/// A program between two memif ports, on a thread of this process.
struct NativeProgram {
    seen: SeenTags,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl NativeProgram {
    fn start(carrier: Carrier, sockets: [String; 2]) -> NativeProgram {
        let (seen, stop) = (SeenTags::default(), Arc::new(AtomicBool::new(false)));
        let (its, is_over) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let open = |socket: &String| {
                let spec: PortSpec = format!("memif:{socket},role=client,mtu=1600").parse().unwrap();
                Interface::open(&spec).unwrap()
            };
            let mut ports = [open(&sockets[0]), open(&sockets[1])];
            let mut burst = TransmitBurst::default();
            while !is_over.load(Ordering::Relaxed) {
                for from in 0..2 {
                    let _ = ports[from].reopen();
                    let way = ["from inside", "from outside"][from];
                    let _ = ports[from].receive(|frame| {
                        let (tag, packet) = carrier.take(frame);
                        *its.lock().unwrap().entry((way, tag)).or_default() += 1;
                        let answer = if from == 0 { judge(carrier, frame, tag, &packet) } else { None };
                        burst.push(&answer.unwrap_or_else(|| carrier.put(frame, tag)));
                    });
                    ports[1 - from].send(&mut burst);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        NativeProgram { seen, stop, thread }
    }

    fn end(self) -> BTreeMap<(&'static str, u32), u32> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        let seen = self.seen.lock().unwrap();
        seen.clone()
    }
}

/// Returns the program's answer to a frame from inside.
fn judge(carrier: Carrier, frame: &[u8], tag: u32, packet: &[u8]) -> Option<Vec<u8>> {
    let (ether_type, rest) = packet[12..].split_at(2);
    let class = match (ether_type, rest.get(9), rest.get(22..24)) {
        ([0x81, 0], ..) => 3,
        ([8, 0], Some(1), _) => 2,
        ([8, 0], Some(6), Some([0, 80])) => 5 | HIT,
        ([8, 0], Some(6), Some([0, 81])) => 5 | HIT,
        ([8, 0], Some(6), Some([0, 82])) => return Some(packet.to_vec()),
        ([8, 0], Some(6), Some([0, 83])) => carrier.bad(),
        _ => 7,
    };
    Some(carrier.put(frame, tag | class))
}

fn is_reached(host: &Host, port: u16) -> bool {
    host.output(&format!("curl -sS -m 2 -o /dev/null http://10.7.0.2:{port}/page")).status.success()
}

fn check(carrier: Carrier, name: &str) {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let socket = |side: &str| network.path(&format!("{side}.sock")).display().to_string();
    let policy = format!(
        "Port<0> inside; Port<1> outside; Monitor behind; Monitor seven;
         FW f {{ rules: \"allow out tcp to any port 80\", default: allow }};
         Native box {{
           ports: {{ inside: \"memif:{},mtu=1600\", outside: \"memif:{},mtu=1600\" }},
           tags: {name}, sets: {{ class: 3, hit: 1 }}
         }};
         pipelet {{
           inside <-> f <-> box;
           box [FW.safe && box.hit && box.class == 5] <-> behind [box.hit] <-> outside;
           box [box.class == 3 && vlan 7] <-> seven [box.class == 3] <-> outside;
           box [box.class == 5] -> Drop;
           box [tcp && box.class == 0] -> Drop;
           box [box.class == 2] <-> outside;
           box <-> outside;
         }}",
        socket("in"),
        socket("out"),
    );
    let rivulet = network.up(&policy, "");
    let program = NativeProgram::start(carrier, [socket("in"), socket("out")]);
    let answers = |options: &str| network.inside.output(&format!("ping {options}")).status.success();
    wait_until("the program passes packets", || answers("-c 1 -W 1 10.7.0.2"));
    // The longest packets of the link.
    network.inside.ping("-c 2 -i 0.05 -W 2 -s 1472 -M do 10.7.0.2");
    network.inside.ping("-c 2 -i 0.05 -W 2 -s 1452 fd07::2");
    fs::write(network.path("page"), "a page").unwrap();
    let folder = network.dir.path().display().to_string();
    let serve = |port: u16| {
        network.outside.serve(&format!("python3 -m http.server --bind :: -d {folder} {port}"), port)
    };
    let _servers = [80, 81, 82, 83].map(serve);
    assert!(is_reached(&network.inside, 80));
    // No rule of the firewall allows it; the program takes its tag; the tag is bad.
    assert_eq!([81, 82, 83].map(|port| is_reached(&network.inside, port)), [false; 3]);
    fs::write(network.path("ping.py"), PING_IN_VLAN).unwrap();
    network.inside.run(&format!("python3 {folder}/ping.py"));
    let has_seven = || program.seen.lock().unwrap().values().sum::<u32>();
    let before = has_seven();
    network.inside.ping("-c 3 -i 0.05 -W 2 10.7.0.2");
    assert!(has_seven() > before);
    let report = rivulet.end();
    let seen = program.end();
    let tags: Vec<(&str, u32)> = seen.keys().copied().collect();
    assert_eq!(tags, [("from inside", 0), ("from inside", SAFE), ("from outside", 0)], "{seen:?}");
    let node = &report["programs"]["box"];
    let count = |name: &str| node[name].as_u64().unwrap();
    assert!(count("untagged") > 0 && count("bad_tags") > 0, "{node}");
    let functions = report["functions"].as_array().unwrap();
    let packets = |name: &str| {
        let function = functions.iter().find(|function| function["name"] == name).unwrap();
        function["packets"].as_u64().unwrap()
    };
    assert!(packets("behind") > 4 && packets("seven") >= 5, "{report}");
    assert!(report["drops"]["policy"].as_u64().unwrap() >= 3, "{report}");
}

#[test]
fn native_program_reads_and_writes_vlan_tags() {
    check(Carrier::Vlan, "vlan");
}

#[test]
fn native_program_reads_and_writes_geneve_options() {
    check(Carrier::Geneve, "geneve");
}

/// The kernel's bridge sees an attribute as a VLAN, and filters by it; the attribute comes back.
#[test]
fn bridge_filters_by_attributes() {
    let _alone = alone();
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let listed = network.path("listed").display().to_string();
    let rules = "table bridge box {
      chain forward {
        type filter hook forward priority 0;
        vlan id 1 icmp type echo-request counter name pings
        vlan id 0 tcp dport 82 counter name refused drop
      }
      counter pings { }
      counter refused { }
    }";
    fs::write(network.path("rules.nft"), rules).unwrap();
    let policy = format!(
        "Port<0> inside; Port<1> outside; Monitor behind; Monitor seven;
         FW f {{ rules: [\"allow out icmp\", \"allow out tcp to any port 80\"], default: allow }};
         Legacy box {{
           mode: bridged,
           tags: vlan,
           setup: \"nft -f {}\",
           command: [sh, \"-c\", \"while sleep 0.2; do nft list ruleset > {listed}.new && mv {listed}.new {listed}; done\"]
         }};
         pipelet {{
           inside <-> f <-> box;
           box [FW.safe && vlan 7] <-> seven [FW.safe] <-> outside;
           box [FW.safe] <-> behind [FW.safe] <-> outside;
           box [port 81] -> Drop;
           box <-> outside;
         }}",
        network.path("rules.nft").display()
    );
    let rivulet = network.up(&policy, "");
    rivulet.wait_for_line("box: started");
    fs::write(network.path("page"), "a page").unwrap();
    let folder = network.dir.path().display().to_string();
    let serve = |port: u16| {
        network.outside.serve(&format!("python3 -m http.server --bind :: -d {folder} {port}"), port)
    };
    let _servers = [80, 81, 82].map(serve);
    let answers = || network.inside.output("ping -c 1 -W 1 10.7.0.2").status.success();
    wait_until("the bridge forwards", answers);
    network.inside.ping("-c 3 -i 0.05 -W 2 -s 1472 -M do 10.7.0.2");
    assert_eq!([80, 81, 82].map(|port| is_reached(&network.inside, port)), [true, false, false]);
    fs::write(network.path("ping.py"), PING_IN_VLAN).unwrap();
    network.inside.run(&format!("python3 {folder}/ping.py"));
    wait_until("the bridge has counted tags", || {
        let listed = fs::read_to_string(&listed).unwrap_or_default();
        listed.matches("packets").count() == 2 && !listed.contains("packets 0 ")
    });
    network.inside.ping("-c 3 -i 0.05 -W 2 10.7.0.2");
    let report = rivulet.end();
    let node = &report["programs"]["box"];
    // The bridge itself sends a few frames, which have no tags.
    assert!(node["untagged"].as_u64().unwrap() < 20 && node["bad_tags"] == 0, "{node}");
    let functions = report["functions"].as_array().unwrap();
    let packets = |name: &str| {
        let function = functions.iter().find(|function| function["name"] == name).unwrap();
        function["packets"].as_u64().unwrap()
    };
    assert!(packets("behind") > 4 && packets("seven") >= 5, "{report}");
}

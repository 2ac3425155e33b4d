//! Segments joined to one frame: segmenting it again gives the original ones.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use io::capture::CaptureReader;

use crate::net::{Io, Network, Server, wait_until};

const WIRE: &str = "Port<0> inside;\nPort<1> outside;\npipelet { inside <-> outside; }\n";

/// Bytes sent over a connection.
const LEN: usize = 4 << 20;

/// Maximum length of an Ethernet frame.
const FRAME_MAX: usize = 1_514;

/// Returns the frames that Rivulet sent and the frames that arrived, with or without segmentation
/// by the kernel in between.
fn carried(network: &Network, cuts: bool) -> [Vec<Vec<u8>>; 2] {
    let on = if cuts { "off" } else { "on" };
    // Checksums, too: the kernel leaves those of frames that it segments incomplete.
    network.middle.run(&format!("ethtool -K outside tx {on} tso {on}"));
    let [sent, came] = ["sent", "came"].map(|name| format!("{name}-{on}.pcap"));
    let mut listen = network.outside.command("tcpdump");
    // Enough memory to lose none, and each frame is written at once.
    listen.args(["-i", "eth0", "-B", "65536", "-U", "-w", &came, "tcp", "dst", "port", "9000"]);
    listen.current_dir(network.dir.path()).stderr(Stdio::null());
    let _listener = Server::of(listen.spawn().unwrap());
    wait_until("tcpdump listens", || network.outside.run("ip -d link show eth0").contains("promiscuity 1"));
    // It opens its file after that.
    wait_until("tcpdump writes", || network.path(&came).exists());
    let rivulet = network.up(WIRE, &format!("--write outside={sent}"));
    let mut server = network.outside.command("nc");
    let server = server.args(["-l", "9000"]).stdout(File::create(network.path("arrived")).unwrap());
    let mut server = server.spawn().unwrap();
    wait_until("nc listens", || network.outside.run("ss -Hltn").contains(":9000 "));
    let mut client = network.inside.command("nc");
    let client = client.args(["-N", "10.7.0.2", "9000"]).stdin(File::open(network.path("file")).unwrap());
    assert!(client.status().unwrap().success());
    assert!(server.wait().unwrap().success());
    assert!(std::fs::read(network.path("file")).unwrap() == std::fs::read(network.path("arrived")).unwrap());
    rivulet.end();
    let is_to_server = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 6;
    let sent: Vec<_> = frames(&network.path(&sent)).into_iter().filter(is_to_server).collect();
    let bytes = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame.len()).sum::<usize>();
    if cuts {
        wait_until("tcpdump has written", || bytes(&frames(&network.path(&came))) >= bytes(&sent));
    }
    [sent, frames(&network.path(&came))]
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut frames = Vec::new();
    // The last record may be incomplete.
    while let Ok(Some(record)) = reader.next() {
        frames.push(record.data.to_vec());
    }
    frames
}

#[test]
fn the_kernel_segments_joined_frames_to_the_original_ones() {
    let Some(network) = Network::new(Io::PacketSocket) else { return };
    let bytes: Vec<u8> = (0..LEN as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(network.path("file"), bytes).unwrap();
    let longest = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).max().unwrap();
    // They are joined.
    let [sent, came] = carried(&network, false);
    assert!(longest(&sent) <= FRAME_MAX && longest(&came) > FRAME_MAX, "{}", longest(&came));
    // After the kernel's segmentation there is no difference.
    let [sent, came] = carried(&network, true);
    assert_eq!((longest(&sent), longest(&came)), (FRAME_MAX, FRAME_MAX));
    assert_eq!(sent.len(), came.len());
    for (number, (sent, came)) in sent.iter().zip(&came).enumerate() {
        let differs = sent.iter().zip(came).position(|(sent, came)| sent != came);
        assert_eq!((differs, sent.len()), (None, came.len()), "frame {number}");
    }
}

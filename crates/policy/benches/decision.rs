//! Lookup of the first filter that a packet passes: `cargo bench -p policy --bench decision`.
//!
//! Edges out of one node, each with an address prefix and a port, and a last edge that takes the
//! rest. Compiled and tested one by one, interleaved; medians of rounds.

use std::hint::black_box;
use std::time::Instant;

use policy::ast::FilterSide;
use policy::{Fields, Filter, FilterAddressSet, FilterNumberField, FilterTable, NumberSet};

const PACKETS: usize = 512;
const ROUNDS: usize = 15;

fn edges(count: u32) -> Vec<Filter> {
    let edge = |number: u32| {
        let network = 0x0a00_0000 | (number << 8);
        let addresses = FilterAddressSet::new(vec![(
            std::net::Ipv4Addr::from_bits(network).into(),
            std::net::Ipv4Addr::from_bits(network | 0xff).into(),
        )]);
        let port = u64::from(number % 100);
        Filter::All(vec![
            Filter::Address { side: FilterSide::Dst, set: addresses },
            Filter::Number { field: FilterNumberField::DstPort, set: NumberSet::new(vec![(port, port)]) },
        ])
    };
    (0..count).map(edge).chain([Filter::Always(true)]).collect()
}

fn packets(count: u32) -> Vec<Fields> {
    let packet = |number: u32| {
        let number = number.wrapping_mul(2_654_435_761) % (count + count / 8 + 1);
        let mut packet = Fields {
            src_ip: Some([192, 0, 2, 1].into()),
            dst_ip: Some(std::net::Ipv4Addr::from_bits(0x0a00_0007 | (number << 8)).into()),
            ..Fields::default()
        };
        packet.numbers.insert(FilterNumberField::DstPort, u64::from(number % 100));
        packet
    };
    (0..PACKETS as u32).map(packet).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    println!("{:>8} {:>12} {:>12}", "edges", "compiled ns", "linear ns");
    for count in [10, 100, 1_000, 10_000] {
        let (edges, packets) = (edges(count), packets(count));
        let table = FilterTable::new(&edges);
        let time = |find: &dyn Fn(&Fields) -> Option<usize>| {
            let began = Instant::now();
            for packet in &packets {
                black_box(find(packet));
            }
            began.elapsed().as_nanos() as f64 / packets.len() as f64
        };
        let linear = |packet: &Fields| edges.iter().position(|edge| edge.matches(packet));
        assert!(packets.iter().all(|packet| table.first(packet) == linear(packet)));
        let rounds = (0..ROUNDS).map(|_| (time(&|packet| table.first(packet)), time(&linear)));
        let (compiled, plain): (Vec<_>, Vec<_>) = rounds.unzip();
        println!("{count:>8} {:>12.0} {:>12.0}", median(compiled), median(plain));
    }
}

//! Whole packets from another implementation: Python's `hmac`, `hashlib` and `cryptography`
//! (OpenSSL), with headers from `struct`.

use packet::Side::Inside;

use crate::meter_support::*;
use crate::pair::*;

/// Protocol, outer IP version, and the encapsulated first datagram "question" from site 1 to site
/// 2, in IPv4.
const KNOWN: [(&str, u8, &str); 8] = [
    (
        "ah",
        4,
        "450000540000400040334e41c0000201c633640104050000000010010000000180ea9195068ba52ef27dce1df092c5db
         45000024000040003f1127b90a0100070a0200071388003500101d407175657374696f6e",
    ),
    (
        "esp_null",
        4,
        "450000540000400040324e42c0000201c6336401000010010000000145000024000040003f1127b90a0100070a020007
         1388003500101d407175657374696f6e010202045762fb45b391e2b5258c1044def49106",
    ),
    (
        "esp",
        4,
        "4500005c0000400040324e3ac0000201c6336401000010010000000117979cfe362a0000c2c3c7979b27a6d05508b50f
         4dc0c053538c1d0cd56383ad36ee9441946dcc0b296678cd283687f98ae82222895e4d28d14cf5ca08debe37",
    ),
    (
        "esp256",
        4,
        "4500005c0000400040324e3ac0000201c6336401000010010000000117979cfe362a00006bc0f974a5937ee880acb2be
         6a6360083b219c8b71c8727739abd11ec694774bc1b81fed57d70055a69e157383f53db20f827cbe990b6b19",
    ),
    (
        "ah",
        6,
        "600000000044334020010db8000a0000000000000000000120010db8000b000000000000000000010406000000001001
         0000000136f31323f7c7e0d47d22f38b442793730000000045000024000040003f1127b90a0100070a02000713880035
         00101d407175657374696f6e",
    ),
    (
        "esp_null",
        6,
        "600000000040324020010db8000a0000000000000000000120010db8000b000000000000000000010000100100000001
         45000024000040003f1127b90a0100070a0200071388003500101d407175657374696f6e010202045762fb45b391e2b5
         258c1044def49106",
    ),
    (
        "esp",
        6,
        "600000000048324020010db8000a0000000000000000000120010db8000b000000000000000000010000100100000001
         17979cfe362a0000c2c3c7979b27a6d05508b50f4dc0c053538c1d0cd56383ad36ee9441946dcc0b296678cd283687f9
         8ae82222895e4d28d14cf5ca08debe37",
    ),
    (
        "esp256",
        6,
        "600000000048324020010db8000a0000000000000000000120010db8000b000000000000000000010000100100000001
         17979cfe362a00006bc0f974a5937ee880acb2be6a6360083b219c8b71c8727739abd11ec694774bc1b81fed57d70055
         a69e157383f53db20f827cbe990b6b19",
    ),
];

// RFC 4302 2, 3.3.3; RFC 4303 2; RFC 4106 3, 4; RFC 4868 2
#[test]
fn packets_equal_those_of_another_implementation() {
    for (protocol, version, expected) in KNOWN {
        let mut one = gateway(protocol, version, 1, &serde_json::json!({}));
        let sent = one.through(NOW_NS, Inside, &udp(host(4, 1, 5_000), host(4, 2, 53), b"question"));
        let hex: String = sent.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected: String = expected.split_whitespace().collect();
        assert_eq!(hex, expected, "{protocol} over {version}");
    }
}

//! Keywords about a packet's headers and size.

use crate::RuleError;
use crate::number::Comparison;
use crate::packet::{FlagTest, FlagTestMode, IpOption, PacketTest};
use crate::reader::{Draft, KeywordUse};
use crate::text::{ParseResult, Piece};

/// Defines keywords with only a comparison as argument.
macro_rules! comparisons {
    ($($keyword:ident $test:ident;)*) => {$(
        pub(crate) fn $keyword(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
            draft.packet(given, PacketTest::$test(Comparison::read(given.value)?))
        }
    )*};
}

comparisons! {
    ttl Ttl;
    id IpId;
    fragoffset FragmentOffset;
    seq Sequence;
    ack Acknowledgement;
    window Window;
    mss Mss;
    wscale WindowScale;
    itype IcmpType;
    icode IcmpCode;
}

pub(crate) fn dsize(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    draft.packet(given, PacketTest::PayloadBytes(Comparison::read(given.value)?))
}

pub(crate) fn tos(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (negated, value) = given.value.negation();
    // `x88` is hexadecimal here.
    let value = match value.strip("x") {
        Some(digits) => u8::from_str_radix(digits.text, 16)
            .ok()
            .filter(|_| !digits.text.starts_with('+'))
            .ok_or_else(|| value.wrong("a number from 0 to 255; hexadecimal after `x`"))?,
        None => value.number(0..=u8::MAX)?,
    };
    draft.packet(given, PacketTest::Tos { negated, value })
}

pub(crate) fn ip_proto(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let (negated, word) = given.value.negation();
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word.text));
    let test = match named {
        Some((_, number)) if negated => Comparison::NotEqual(*number),
        Some((_, number)) => Comparison::Equal(*number),
        None => Comparison::read(given.value)?,
    };
    draft.packet(given, PacketTest::IpProtocol(test))
}

/// Names of protocols above IP (IANA, "Assigned Internet Protocol Numbers").
const PROTOCOLS: [(&str, u8); 21] = [
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
];

pub(crate) fn sameip(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.packet(given, PacketTest::SameAddress)
}

pub(crate) fn ipopts(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.once(given)?;
    let option = match given.value.text {
        "any" => IpOption::Any,
        _ => IpOption::Type(given.value.one_of(&IpOption::NAMES)?),
    };
    draft.packet(given, PacketTest::IpOption(option))
}

pub(crate) fn icmp_id(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let value = given.unquoted()?.number(0..=u16::MAX)?;
    draft.packet(given, PacketTest::IcmpId(value))
}

pub(crate) fn icmp_seq(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    let value = given.unquoted()?.number(0..=u16::MAX)?;
    draft.packet(given, PacketTest::IcmpSequence(value))
}

pub(crate) fn flags(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.packet(given, PacketTest::TcpFlags(bits(given.value, &TCP_LETTERS)?))
}

pub(crate) fn fragbits(draft: &mut Draft<'_>, given: KeywordUse<'_>) -> ParseResult<()> {
    draft.packet(given, PacketTest::FragmentBits(bits(given.value, &FlagTest::FRAGMENT)?))
}

/// The letters of [`FlagTest::TCP`], with the digits that predate two of them.
const TCP_LETTERS: [(char, u8); 10] = {
    let mut letters = [('1', 0x80); 10];
    letters[1] = ('2', 0x40);
    let mut i = 0;
    while i < FlagTest::TCP.len() {
        letters[i + 2] = FlagTest::TCP[i];
        i += 1;
    }
    letters
};

/// Parses a mode, before or after the letters, and after a comma the ignored letters.
fn bits(piece: Piece<'_>, letters: &[(char, u8)]) -> ParseResult<FlagTest> {
    let (test, ignored) = piece.cut(",").unwrap_or((piece, piece.from(piece.text.len())));
    let mut mode = None;
    let bits = letters_of(test.trim(), letters, &mut |sign| {
        let next = match sign {
            '+' => FlagTestMode::All,
            '*' => FlagTestMode::Any,
            '!' | '-' => FlagTestMode::NotAll,
            '=' => FlagTestMode::Exactly,
            _ => return false,
        };
        mode.replace(next).is_none()
    })?;
    let ignored = letters_of(ignored.trim(), letters, &mut |_| false)?;
    let mode = mode.unwrap_or(FlagTestMode::Exactly);
    if bits & ignored != 0 {
        return Err(
            piece.error(RuleError::NeverMatches { why: "a flag is both asked for and ignored".into() })
        );
    }
    if bits == 0 && mode != FlagTestMode::Exactly {
        return Err(piece.wrong("at least one flag"));
    }
    Ok(FlagTest { mode, bits, ignored })
}

fn letters_of(
    piece: Piece<'_>,
    letters: &[(char, u8)],
    other: &mut dyn FnMut(char) -> bool,
) -> ParseResult<u8> {
    let mut bits = 0;
    let mut any = false;
    for c in piece.text.chars().filter(|c| !c.is_whitespace()) {
        let letter = letters.iter().find(|(letter, _)| letter.eq_ignore_ascii_case(&c));
        match letter {
            Some((_, bit)) if bits & bit == 0 => bits |= bit,
            None if c == '0' && !any => {}
            None if other(c) => continue,
            _ => {
                let names: String = letters.iter().map(|(letter, _)| letter).collect();
                return Err(piece
                    .wrong(format!("letters of `{names}`, each once, with one of `+*!` at most; or `0`")));
            }
        }
        any = true;
    }
    Ok(bits)
}

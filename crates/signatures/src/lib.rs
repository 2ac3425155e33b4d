//! Signatures of intrusion detection, in the language of Suricata and the part of Snort's that is
//! the same.
//!
//! The crate reads rules into values that an engine can carry out, and [`inspect`] carries out the
//! part that concerns one buffer. It reads no files: it is given their text.
//!
//! A rule is read whole or refused with the place and the reason ([`Fault`]): what a rule says is
//! never applied in part. Older spellings come out as the newer ones mean, so that an engine sees
//! one way of saying each thing; the types say what each part of a rule means. What an engine has
//! to be able to do for a rule, [`Rule::needs`] tells.
//!
//! ```
//! use signatures::{Classifications, Match, Ruleset, Variables};
//!
//! let text = r#"alert http any any -> $HOME_NET 80 (msg:"A shell by HTTP"; flow:established,to_server;
//!     content:"/cmd.php"; http_uri; nocase; classtype:web-application-attack; sid:1; rev:2;)"#.replace("\n", "\\\n");
//! let (classes, _) = Classifications::read("classification.config",
//!     "config classification: web-application-attack,Web Application Attack,1");
//! let report = Ruleset::read("local.rules", &text, &Variables::default(), &classes);
//! let rule = &report.ruleset.rules()[0].rule;
//! assert_eq!(rule.priority, 1);
//! let Match::Content(content) = &rule.buffers[0].matches[0] else { unreachable!() };
//! assert_eq!((rule.buffers[0].buffer.name(), &content.pattern[..]), ("http.uri", &b"/cmd.php"[..]));
//!
//! let report = Ruleset::read("local.rules", "alert tcp any any -> any 80 (depht:5; sid:7;)",
//!     &Variables::default(), &classes);
//! assert_eq!(report.faults[0].to_string(),
//!     "local.rules:1:30: sid 7: keyword `depht` is unknown; did you mean `depth`?");
//! ```

mod buffer;
mod classification;
mod error;
mod expression;
mod fault;
mod flow;
mod group;
pub mod inspect;
mod interval;
mod keyword;
mod limit;
mod needs;
mod number;
mod packet;
mod payload;
mod pcre;
mod print;
mod protocol;
mod reader;
mod rule;
mod ruleset;
mod text;
mod thresholds;
mod transform;
mod variables;

pub use buffer::Buffer;
pub use classification::{CLASSES_MAX, Classification, Classifications};
pub use error::RuleError;
pub use expression::ExpressionFeature;
pub use fault::{Fault, Place, RULE_BYTES_MAX};
pub use flow::{
    DEFAULT_XBIT_SECONDS, Flow, Flowbit, Flowint, FlowintOperation, FlowintTest, FlowintValue, Only, State,
    StreamSide, StreamSize, Way, Xbit, XbitOperation, XbitTrack,
};
pub use group::{Addresses, GROUP_DEPTH_MAX, GROUP_RANGES_MAX, Ports};
pub use keyword::{Keyword, Kind, Status, keyword, keywords};
pub use limit::{
    DEFAULT_TAG_PACKETS, DetectionFilter, Tag, TagScope, TagUnit, Threshold, ThresholdKind, Track, UniqueOn,
};
pub use needs::Capability;
pub use number::{Comparison, Unsigned};
pub use packet::{Bits, BitsMode, IpOption, PacketTest};
pub use payload::{
    Base64Decode, BufferMatches, ByteExtract, ByteJump, ByteMath, ByteTest, CONTENT_BYTES_MAX, Content,
    DataAt, FastPattern, JumpOrigin, MATCHES_MAX, Match, MathOperator, Number, NumberFormat, Operand,
    Position, REACH_BYTES_MAX, TestOperator, VARIABLES_MAX, Variable,
};
pub use pcre::{PCRE_BYTES_MAX, Pcre, PcreFlags};
pub use protocol::{
    Application, FtpDataCommand, Protocol, ProtocolMode, ProtocolTest, TlsState, TlsVersion, Transport,
};
pub use rule::{Action, DEFAULT_GID, DEFAULT_PRIORITY, Direction, Reference, Rejected, Rule, Target};
pub use ruleset::{Loaded, RULES_MAX, Replaced, Report, Ruleset};
pub use thresholds::{Limit, LimitKind, RateFilter, Suppress, SuppressEnd, THRESHOLDS_MAX, Thresholds};
pub use transform::{Base64Mode, Transform};
pub use variables::{DEFAULTS, VARIABLES_DEFINED_MAX, Variables};

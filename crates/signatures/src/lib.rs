//! Intrusion detection signatures, in the language of Suricata and the part of Snort's that is the
//! same.
//!
//! The crate parses rules into values for an engine, and [`inspect`] evaluates the part of a rule
//! that concerns one buffer. It reads no files: the caller passes their text.
//!
//! A rule is parsed whole or refused with position and reason ([`RuleFault`]): it is never applied
//! in part. Older spellings parse to the same values as newer ones. [`Rule::needs`] returns the
//! capabilities that an engine must have for a rule.
//!
//! ```
//! use signatures::{Classifications, PayloadMatch, RuleVariables, Ruleset};
//!
//! let text = r#"alert http any any -> $HOME_NET 80 (msg:"A shell by HTTP"; flow:established,to_server;
//!     content:"/cmd.php"; http_uri; nocase; classtype:web-application-attack; sid:1; rev:2;)"#.replace("\n", "\\\n");
//! let (classes, _) = Classifications::read("classification.config",
//!     "config classification: web-application-attack,Web Application Attack,1");
//! let report = Ruleset::read("local.rules", &text, &RuleVariables::default(), &classes);
//! let rule = &report.ruleset.rules()[0].rule;
//! assert_eq!(rule.priority, 1);
//! let PayloadMatch::Content(content) = &rule.buffers[0].matches[0] else { unreachable!() };
//! assert_eq!((rule.buffers[0].buffer.name(), &content.pattern[..]), ("http.uri", &b"/cmd.php"[..]));
//!
//! let report = Ruleset::read("local.rules", "alert tcp any any -> any 80 (depht:5; sid:7;)",
//!     &RuleVariables::default(), &classes);
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
mod parser;
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
pub use fault::{RULE_BYTES_MAX, RuleFault, SourceLine};
pub use flow::{
    DEFAULT_XBIT_SECONDS, FlowDirection, FlowOptions, FlowState, Flowbit, Flowint, FlowintOperation,
    FlowintTest, FlowintValue, ReassemblyFilter, StreamSide, StreamSize, Xbit, XbitOperation, XbitTrack,
};
pub use group::{AddressSet, GROUP_DEPTH_MAX, GROUP_RANGES_MAX, PortSet};
pub use keyword::{Keyword, KeywordKind, KeywordStatus, keyword, keywords};
pub use limit::{
    DEFAULT_TAG_PACKETS, DetectionFilter, TagOption, TagScope, TagUnit, Threshold, ThresholdKind, TrackBy,
    UniqueOn,
};
pub use needs::Capability;
pub use number::{Comparison, Unsigned};
pub use packet::{FlagTest, FlagTestMode, IpOption, PacketTest};
pub use payload::{
    Base64Decode, BufferMatches, ByteExtract, ByteJump, ByteMath, ByteTest, ByteVariable, CONTENT_BYTES_MAX,
    Content, ContentPosition, DataAt, FastPattern, JumpOrigin, MATCHES_MAX, MathOperator, NumberField,
    NumberFormat, Operand, PayloadMatch, REACH_BYTES_MAX, TestOperator, VARIABLES_MAX,
};
pub use pcre::{PCRE_BYTES_MAX, Pcre, PcreFlags};
pub use protocol::{
    Application, FtpDataCommand, ProtocolMode, ProtocolTest, RuleProtocol, RuleTransport, TlsState,
    TlsVersion,
};
pub use rule::{
    AttackTarget, DEFAULT_GID, DEFAULT_PRIORITY, HeaderDirection, RejectTarget, Rule, RuleAction,
    RuleReference,
};
pub use ruleset::{LoadedRule, RULES_MAX, ReplacedRule, Ruleset, RulesetReport};
pub use thresholds::{
    RateFilter, Suppress, SuppressEnd, THRESHOLDS_MAX, ThresholdEntry, ThresholdEntryKind, Thresholds,
};
pub use transform::{Base64Mode, BufferTransform};
pub use variables::{DEFAULTS, RuleVariables, VARIABLES_DEFINED_MAX};

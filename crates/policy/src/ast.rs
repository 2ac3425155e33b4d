//! The syntax tree of a policy. Trees compare equal if they mean the same, whatever their
//! positions.

use crate::literal::ConfigLiteral;
use crate::source::Span;

/// A syntax node with its position.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// The node.
    pub node: T,
    /// Its position.
    pub span: Span,
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<T> Spanned<T> {
    /// Attaches a position to a node.
    pub fn new(node: T, span: Span) -> Self {
        Self { node, span }
    }
}

/// A name chosen by the author.
pub type Name = Spanned<String>;

/// A whole policy, items in the order of the text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// Declarations and pipelets.
    pub items: Vec<PolicyItem>,
}

/// A declaration or a pipelet.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyItem {
    /// `let name = value;`
    Let {
        /// The name.
        name: Name,
        /// The value.
        value: ValueExpr,
    },
    /// `Port<0-7> name { ... };`
    Port {
        /// First port number.
        first: Spanned<u64>,
        /// Last port number, if a range is written.
        last: Option<Spanned<u64>>,
        /// Name of the ports.
        name: Name,
        /// The configuration block.
        config: Option<ValueExpr>,
    },
    /// `Type name { ... };`
    Nf {
        /// The NF type.
        type_name: Name,
        /// Name of the instance.
        name: Name,
        /// The configuration block.
        config: Option<ValueExpr>,
    },
    /// `settings { ... };`
    Settings {
        /// The word `settings`.
        keyword: Spanned<()>,
        /// The block.
        config: ValueExpr,
    },
    /// `pipelet name { ... }`
    Pipelet {
        /// The word `pipelet`.
        keyword: Spanned<()>,
        /// The optional name.
        name: Option<Name>,
        /// The statements.
        chains: Vec<EdgeChain>,
    },
}

/// `a [filter] -> b <-> c;`
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeChain {
    /// At least one source with its arrow.
    pub hops: Vec<EdgeChainHop>,
    /// The last node.
    pub last: Name,
}

/// A node with its filter and the arrow after it.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeChainHop {
    /// The source of the packets.
    pub node: Name,
    /// Filter on the packets; all if absent.
    pub filter: Option<FilterExpr>,
    /// The arrow to the next node.
    pub arrow: Spanned<Arrow>,
}

/// An arrow between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrow {
    /// `->`
    Forward,
    /// `<->`
    Both,
}

/// A value with its position.
pub type ValueExpr = Spanned<ValueExprKind>;

/// Kinds of values.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueExprKind {
    /// A literal of one word.
    Literal(ConfigLiteral),
    /// `"..."` or `"""..."""`
    Text(TextExpr),
    /// `file("path")`, at the position of the path.
    File(Spanned<TextExpr>),
    /// A bare word: the name of a `let`, or a word known to the reader of the configuration.
    Word(String),
    /// `$name`
    Reference(String),
    /// `[...]`, or `{...}` without keys
    List(Vec<ValueExpr>),
    /// `{ key: value, ... }`
    Object(Vec<(Name, ValueExpr)>),
}

/// A string.
#[derive(Clone, Debug)]
pub struct TextExpr {
    /// The text with escape sequences resolved.
    pub text: String,
    /// The characters written as escape sequences, as in [`values::Origin::escapes`].
    pub escapes: Vec<(u32, u32)>,
    /// Length of the opening quotes in bytes.
    pub quotes: u32,
}

impl PartialEq for TextExpr {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A boolean expression over a packet, with its position.
pub type FilterExpr = Spanned<FilterExprKind>;

/// Kinds of filter expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterExprKind {
    /// `true`, `false`
    Always(bool),
    /// `!a`
    Not(Box<FilterExpr>),
    /// `a && b && c`, at least two
    All(Vec<FilterExpr>),
    /// `a || b || c`, at least two
    Any(Vec<FilterExpr>),
    /// `dst port >= 1024`
    Test {
        /// `src` or `dst`; if absent, either may match.
        side: Option<FilterSide>,
        /// The header field.
        field: Field,
        /// [`FilterComparison::Eq`] if not written.
        compare: FilterComparison,
        /// The operand.
        value: ValueExpr,
    },
    /// `tcp flags syn,!ack`: flags, each with true for set and false for clear
    Flags(Vec<(Spanned<TcpFlag>, bool)>),
    /// `FW.safe`, `lb.weight >= 3`
    Attribute {
        /// An NF instance or type.
        owner: Name,
        /// The attribute.
        name: Name,
        /// The comparison; a bare attribute must be present and non-zero.
        test: Option<(FilterComparison, ValueExpr)>,
    },
}

/// One end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilterSide {
    /// The source.
    Src,
    /// The destination.
    Dst,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants say it")]
pub enum FilterComparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Defines an enum with the words of its variants in the language.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the word of the language.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Returns the variant of a word.
            pub fn find(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.word() == word)
            }
        }
    };
}

words! {
    /// A header field that filters test.
    Field {
        /// An IPv4 or IPv6 address.
        Ip = "ip",
        /// An IPv6 address.
        Ip6 = "ip6",
        /// An address; reads better with prefixes.
        Net = "net",
        /// A TCP, UDP or SCTP port.
        Port = "port",
        /// The IP protocol (IPv6: the last next header).
        Proto = "proto",
        /// The outermost VLAN identifier.
        Vlan = "vlan",
        /// The tenant that owns the packet.
        Tenant = "tenant",
        /// The differentiated services code point (RFC 2474).
        Dscp = "dscp",
    }
}

words! {
    /// A TCP flag (RFC 9293 section 3.1).
    TcpFlag {
        /// No more data.
        Fin = "fin",
        /// Synchronise.
        Syn = "syn",
        /// Reset.
        Rst = "rst",
        /// Push.
        Psh = "psh",
        /// The acknowledgment number is valid.
        Ack = "ack",
        /// The urgent pointer is valid.
        Urg = "urg",
        /// ECN echo.
        Ece = "ece",
        /// Congestion window reduced.
        Cwr = "cwr",
    }
}

impl TcpFlag {
    /// Returns its bit in the header's flags octet.
    pub fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl FilterSide {
    /// Returns the word of the language.
    pub fn word(self) -> &'static str {
        match self {
            Self::Src => "src",
            Self::Dst => "dst",
        }
    }

    /// Returns the other end.
    #[must_use]
    pub fn mirrored(self) -> Self {
        match self {
            Self::Src => Self::Dst,
            Self::Dst => Self::Src,
        }
    }
}

impl FilterComparison {
    /// Returns the operator of the language.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }
}

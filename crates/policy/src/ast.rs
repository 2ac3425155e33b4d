//! A policy as it is written: the syntax tree. Two pieces of syntax are equal when they say the
//! same, wherever they stand.

use crate::literal::ConfigLiteral;
use crate::source::Span;

/// A piece of syntax and where it stands.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// What it says.
    pub node: T,
    /// Where it stands.
    pub span: Span,
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<T> Spanned<T> {
    /// Puts a piece of syntax in its place.
    pub fn new(node: T, span: Span) -> Self {
        Self { node, span }
    }
}

/// A name that the author chose.
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
        /// What it stands for.
        value: ValueExpr,
    },
    /// `Port<0-7> name { ... };`
    Port {
        /// The first port number.
        first: Spanned<u64>,
        /// The last one, if a range is written.
        last: Option<Spanned<u64>>,
        /// What the ports are called.
        name: Name,
        /// The configuration block.
        config: Option<ValueExpr>,
    },
    /// `Type name { ... };`
    Nf {
        /// The type of network function.
        type_name: Name,
        /// The instance.
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
        /// A pipelet may do without a name.
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
    /// The node at the end.
    pub last: Name,
}

/// A node, its filter and the arrow behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeChainHop {
    /// The node that packets come from.
    pub node: Name,
    /// Which of its packets take this way; all, if absent.
    pub filter: Option<FilterExpr>,
    /// Where they go.
    pub arrow: Spanned<Arrow>,
}

/// How two nodes are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrow {
    /// `->`
    Forward,
    /// `<->`
    Both,
}

/// A value with its place.
pub type ValueExpr = Spanned<ValueExprKind>;

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueExprKind {
    /// A literal of one word.
    Literal(ConfigLiteral),
    /// `"..."` or `"""..."""`
    Text(TextExpr),
    /// `file("path")`; the place is that of the path.
    File(Spanned<TextExpr>),
    /// A bare word: the name of a `let`, or a word that the reader of the configuration knows.
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
    /// What it says, escape sequences resolved.
    pub text: String,
    /// Which characters are written with escape sequences, as in [`values::Origin::escapes`].
    pub escapes: Vec<(u32, u32)>,
    /// How many bytes the opening quotes take.
    pub quotes: u32,
}

impl PartialEq for TextExpr {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A boolean expression over a packet, with its place.
pub type FilterExpr = Spanned<FilterExprKind>;

/// What a filter says.
#[derive(Clone, Debug, PartialEq)]
pub enum FilterExprKind {
    /// `true`, `false`
    Always(bool),
    /// `!a`
    Not(Box<FilterExpr>),
    /// `a && b && c`, two at least
    All(Vec<FilterExpr>),
    /// `a || b || c`, two at least
    Any(Vec<FilterExpr>),
    /// `dst port >= 1024`
    Test {
        /// `src` or `dst`; both are tried if absent.
        side: Option<FilterSide>,
        /// The header field.
        field: Field,
        /// [`Comparison::Eq`] if not written.
        compare: Comparison,
        /// What it is compared with.
        value: ValueExpr,
    },
    /// `tcp flags syn,!ack`: the flags and whether each has to be set
    Flags(Vec<(Spanned<TcpFlag>, bool)>),
    /// `FW.safe`, `lb.weight >= 3`
    Attribute {
        /// An NF instance or type.
        owner: Name,
        /// The attribute.
        name: Name,
        /// The comparison; a bare attribute has to be present and not zero.
        test: Option<(Comparison, ValueExpr)>,
    },
}

/// Which end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterSide {
    /// The source.
    Src,
    /// The destination.
    Dst,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants say it")]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// A table of words: the enum's variants with how the language writes them.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// How the language writes it.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one that is written so.
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
        /// The tenant to whom the packet belongs.
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
        /// The acknowledgment number counts.
        Ack = "ack",
        /// The urgent pointer counts.
        Urg = "urg",
        /// ECN echo.
        Ece = "ece",
        /// Congestion window reduced.
        Cwr = "cwr",
    }
}

impl TcpFlag {
    /// Its bit in the flags octet of the header.
    pub fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl FilterSide {
    /// How the language writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Src => "src",
            Self::Dst => "dst",
        }
    }

    /// The other end.
    #[must_use]
    pub fn mirrored(self) -> Self {
        match self {
            Self::Src => Self::Dst,
            Self::Dst => Self::Src,
        }
    }
}

impl Comparison {
    /// How the language writes it.
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

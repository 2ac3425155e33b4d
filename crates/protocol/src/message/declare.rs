//! The declaration of a message: the macro `messages!`, the descriptions that it makes, and their
//! tables in the documentation.

use std::fmt::Write;

use crate::timer::TimerInfo;
use crate::wire::WireForm;

/// The order of a message relative to the packets on the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The message stays after all packets sent before it: it queues with them.
    Ordered,
    /// The message may pass packets that wait (S18).
    Free,
}

/// A message, as documentation and tools show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageInfo {
    /// The name.
    pub name: &'static str,
    /// The first byte on links, which distinguishes the messages of one kind of sender.
    pub tag: u8,
    /// The meaning.
    pub about: &'static str,
    /// The sender.
    pub from: &'static str,
    /// The receiver.
    pub to: &'static str,
    /// The lane, as text.
    pub lane: &'static str,
    /// The fields, in the order of their bytes.
    pub fields: &'static [MessageField],
    /// The message that answers it.
    pub answer: &'static str,
    /// The timers that wait for the answer, or repeat the message.
    pub timers: &'static [TimerInfo],
    /// The cause of a repetition.
    pub repeated_by: &'static str,
    /// The consequence of its loss.
    pub if_lost: &'static str,
}

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageField {
    /// The name.
    pub name: &'static str,
    /// The meaning.
    pub about: &'static str,
    /// The form of its bytes.
    pub form: WireForm,
    /// The version of the wire format that has added the field; 1 for the first.
    pub since: u16,
}

/// Declares the messages of one kind of sender, each once: the enum, how a message is written and
/// read, its flow, its lane, and `MESSAGES`: documentation, dissector and golden frames are made of
/// that.
///
/// After the enum's name stands the type of a message's flow, an `Option` if some messages are
/// about a whole unit. A message about a flow has it as its first field. A message says:
///
/// | part | meaning |
/// |---|---|
/// | `= 3` | tag: its first byte on links; no other message of the enum has it, or had it |
/// | `field: Type` | bytes on links are in this order |
/// | `field: Type = since(2)` | added by this version; the default where bytes end before |
/// | `from`, `to` | sender and receiver |
/// | `lane: Ordered`, `lane: Free` | order relative to packets |
/// | `lane: Ordered if field` | the former if the field is true |
/// | `exchange: field` | part of the exchange that begins the epoch in this field, if any |
/// | `answer` | the message that answers it |
/// | `timers` | timers that wait for the answer, or repeat the message |
/// | `repeated_by`, `if_lost` | cause of a repetition, consequence of a loss |
macro_rules! messages {
    (
        $(#[doc = $group_doc:literal])+
        pub enum $group:ident of $flow:ty {
            $(
                $(#[doc = $doc:literal])+
                $message:ident = $tag:literal $({
                    $(
                        $(#[doc = $field_doc:literal])+
                        $field:ident: $type:ty $(= since($since:literal))?,
                    )+
                })? => {
                    from: $from:literal,
                    to: $to:literal,
                    lane: $lane:ident $(if $mark:ident)?,
                    $(exchange: $exchange:ident,)?
                    answer: $answer:literal,
                    timers: [$($timer:expr),*],
                    repeated_by: $repeated_by:literal,
                    if_lost: $if_lost:literal,
                }
            )+
        }
    ) => {
        $(#[doc = $group_doc])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $group {
            $(
                $(#[doc = $doc])+
                #[doc = ""]
                #[doc = concat!("From: ", $from, ". To: ", $to, ". If it is lost: ", $if_lost, ".")]
                $message $({ $($(#[doc = $field_doc])+ $field: $type,)+ })?,
            )+
        }

        impl $group {
            /// The declarations of all of them, in the order of the documentation.
            pub const MESSAGES: &'static [$crate::message::MessageInfo] = &[$(
                $crate::message::MessageInfo {
                    name: stringify!($message),
                    tag: $tag,
                    about: concat!($($doc),+).trim_ascii(),
                    from: $from,
                    to: $to,
                    lane: $crate::message::declare::lane!(text $lane $(if $mark)?),
                    fields: &[$($($crate::message::MessageField {
                        name: stringify!($field),
                        about: concat!($($field_doc),+).trim_ascii(),
                        form: <$type as $crate::wire::Wire>::FORM,
                        since: $crate::message::declare::since!($($since)?),
                    },)+)?],
                    answer: $answer,
                    timers: &[$($timer.info()),*],
                    repeated_by: $repeated_by,
                    if_lost: $if_lost,
                },
            )+];

            /// The order of the message relative to packets.
            pub fn lane(&self) -> $crate::message::Lane {
                match self {
                    $($group::$message { $($mark,)? .. } => {
                        $crate::message::declare::lane!(value $lane $(if $mark)?)
                    })+
                }
            }

            /// The flow concerned.
            #[allow(unused_variables, reason = "only the first field is of use")]
            pub fn flow(&self) -> $flow {
                match self {
                    $($group::$message $({ $($field),+ })? => {
                        $crate::message::declare::first!($($($field),+)?)
                    })+
                }
            }

            /// Returns the epoch that the exchange of the message begins; `None` without one.
            pub fn epoch_of_exchange(&self) -> Option<$crate::message::Epoch> {
                match self {
                    $($group::$message { $($exchange,)? .. } => {
                        $crate::message::declare::first!($($exchange)?)
                    })+
                }
            }

            /// Returns the name.
            pub fn name(&self) -> &'static str {
                match self {
                    $($group::$message { .. } => stringify!($message),)+
                }
            }

            /// Returns the value of the field with this name; `None` if the message has no such
            /// field, or it is no number.
            #[allow(unused_variables, reason = "if the message has no fields")]
            pub fn number(&self, name: &str) -> Option<u64> {
                match self {
                    $($group::$message $({ $($field),+ })? => {
                        $($(if name == stringify!($field) {
                            return $crate::wire::Wire::number($field);
                        })+)?
                        None
                    })+
                }
            }

            /// Appends the bytes of the message.
            pub fn write(&self, out: &mut Vec<u8>) {
                match self {
                    $($group::$message $({ $($field),+ })? => {
                        out.push($tag);
                        $($($crate::wire::Wire::write($field, out);)+)?
                    })+
                }
            }

            /// Reads a message.
            ///
            /// # Errors
            ///
            /// If its bytes end early, or have a value that a field has not;
            /// [`UnknownKind`](crate::wire::FrameError::UnknownKind) if a later version may know the
            /// message.
            pub fn read(
                from: &mut $crate::wire::Reader<'_>,
            ) -> Result<$group, $crate::wire::FrameError> {
                Ok(match from.u8()? {
                    $($tag => $group::$message $({
                        $($field: $crate::message::declare::read!(from $(, $since)?),)+
                    })?,)+
                    tag => return Err($crate::wire::FrameError::UnknownKind(tag)),
                })
            }

            /// Bytes of state or delta in the message; `None` if it carries neither.
            #[allow(unused_variables, reason = "if no message has fields that may")]
            pub fn state_bytes(&self) -> Option<usize> {
                match self {
                    $($group::$message $({ $($field),+ })? => {
                        None $($(.or_else(|| $crate::wire::Wire::state_bytes($field)))+)?
                    })+
                }
            }
        }
    };
}

/// The lane of a declaration, as a value and as text.
macro_rules! lane {
    (value $lane:ident) => {
        $crate::message::Lane::$lane
    };
    (value $lane:ident if $mark:ident) => {
        if *$mark { $crate::message::Lane::$lane } else { $crate::message::Lane::Free }
    };
    (text Ordered) => {
        "ordered"
    };
    (text Free) => {
        "free"
    };
    (text Ordered if $mark:ident) => {
        concat!("ordered if `", stringify!($mark), "`, else free")
    };
}

/// The version that has added a field.
macro_rules! since {
    () => {
        1
    };
    ($since:literal) => {
        $since
    };
}

/// Reads a field; a field that a version has added may be missing.
macro_rules! read {
    ($from:ident) => {
        $crate::wire::Wire::read($from)?
    };
    ($from:ident, $since:literal) => {
        if $from.is_empty() { Default::default() } else { $crate::wire::Wire::read($from)? }
    };
}

/// The first of these fields.
macro_rules! first {
    () => {
        None
    };
    ($first:ident $(, $rest:ident)*) => {
        (*$first).into()
    };
}

pub(crate) use {first, lane, messages, read, since};

/// Returns a table of messages, in Markdown: their senders, receivers and fields.
pub fn messages_table(messages: &[MessageInfo]) -> String {
    let head = "| message | from | to | lane | fields | meaning |\n|---|---|---|---|---|---|\n";
    table(head, messages, |message| {
        let MessageInfo { name, from, to, lane, about, .. } = message;
        let fields: Vec<_> = message.fields.iter().map(|field| format!("`{}`", field.name)).collect();
        format!("| `{name}` | {from} | {to} | {lane} | {} | {about} |", fields.join(", "))
    })
}

/// Returns a table of messages, in Markdown: their answers, and the consequences of their loss.
pub fn losses_table(messages: &[MessageInfo]) -> String {
    let head = "| message | answer | timer | repeated by | if it is lost |\n|---|---|---|---|---|\n";
    table(head, messages, |message| {
        let MessageInfo { name, answer, repeated_by, if_lost, .. } = message;
        let timers: Vec<_> = message.timers.iter().map(|timer| timer.name).collect();
        format!("| `{name}` | {answer} | {} | {repeated_by} | {if_lost} |", timers.join(", "))
    })
}

fn table(head: &str, messages: &[MessageInfo], row: impl Fn(&MessageInfo) -> String) -> String {
    let mut table = head.to_owned();
    for message in messages {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{}", row(message));
    }
    table
}

//! The kinds of frames, each declared once: code, dissector and `docs/protocol.md` have them from
//! here.

/// A kind of frame, as documentation and tools show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameInfo {
    /// The first byte of a frame.
    pub kind: u8,
    /// The name, in a few words.
    pub name: &'static str,
    /// The sender.
    pub from: &'static str,
    /// The receiver.
    pub to: &'static str,
    /// The meaning.
    pub about: &'static str,
}

/// Returns the table of frames, in Markdown.
pub fn frames_table() -> String {
    let mut table = "| kind | frame | from | to | meaning |\n|---|---|---|---|---|\n".to_owned();
    for FrameInfo { kind, name, from, to, about } in FRAMES {
        table += &format!("| {kind:#04x} | {name} | {from} | {to} | {about} |\n");
    }
    table
}

/// Declares the kinds of frames: a number of each, and `FRAMES`.
macro_rules! frames {
    ($($(#[doc = $doc:literal])+ $kind:ident = $number:literal $name:literal $from:literal => $to:literal;)+) => {
        /// All kinds of frames, in the order of their numbers.
        pub const FRAMES: &[FrameInfo] = &[$(FrameInfo {
            kind: $number,
            name: $name,
            from: $from,
            to: $to,
            about: concat!($($doc),+).trim_ascii(),
        }),+];

        $(
            $(#[doc = $doc])+
            pub(super) const $kind: u8 = $number;
        )+
    };
}

frames! {
    /// The first frame of each end: versions, name, role, policy.
    HELLO = 0x01 "Hello" "both ends" => "both ends";
    /// The time of the dispatcher's clock.
    TIME = 0x10 "Time" "dispatcher" => "unit";
    /// The time; the unit handles its deadlines, and answers.
    STEP = 0x11 "Step" "dispatcher" => "unit";
    /// The unit answers with a report.
    ANSWER = 0x12 "Answer" "dispatcher" => "unit";
    /// A packet with its stamp.
    PACKET = 0x13 "Packet" "dispatcher" => "unit";
    /// A message of the dispatcher, after the time.
    MESSAGE = 0x14 "Message" "dispatcher" => "unit";
    /// An operator's command to a function.
    CONTROL = 0x15 "Control" "dispatcher" => "unit";
    /// The unit sends its counters.
    FIGURES = 0x16 "Figures asked" "dispatcher" => "unit";
    /// All flows end, and everything before Resume is discarded.
    RESET = 0x17 "Reset" "dispatcher" => "unit";
    /// All units have been reset.
    RESUME = 0x18 "Resume" "dispatcher" => "unit";
    /// The run ends.
    FINISH = 0x19 "Finish" "dispatcher" => "unit";
    /// Numbers, names and addresses of all units.
    UNITS = 0x1a "Units" "dispatcher" => "unit";
    /// The receiver becomes a unit.
    ASSIGN = 0x1b "Assign" "dispatcher" => "unit";
    /// The receiver was drained, and is no unit any more.
    STOPPED = 0x1c "Stopped" "dispatcher" => "unit";
    /// A policy, as texts, that the receiver reads.
    POLICY = 0x1d "Policy" "dispatcher" => "unit";
    /// The receiver gives its flows away, and then runs the policy of a digest.
    RENEW = 0x1e "Renew" "dispatcher" => "unit";
    /// A frame of a unit (0x30, 0x31) that cannot reach the receiver.
    RELAYED = 0x1f "Relayed" "dispatcher" => "unit";
    /// A report with the unit's messages, without the packets of its output.
    REPORT = 0x20 "Report" "unit" => "dispatcher";
    /// A packet of the unit's output.
    OUTPUT = 0x21 "Output" "unit" => "dispatcher";
    /// Counters of a unit.
    FIGURES_OF_UNIT = 0x22 "Figures" "unit" => "dispatcher";
    /// The unit will end, and gives its flows away before.
    LEAVE = 0x23 "Leave" "unit" => "dispatcher";
    /// A policy was read, or why it cannot be run.
    POLICY_READ = 0x24 "Policy read" "unit" => "dispatcher";
    /// The unit has given its flows away, and the link ends.
    GONE = 0x25 "Gone" "unit" => "dispatcher";
    /// A frame (0x30, 0x31) for a unit that the sender cannot reach.
    RELAY = 0x26 "Relay" "unit" => "dispatcher";
    /// A message between units.
    PEER = 0x30 "Peer message" "unit" => "unit";
    /// A late packet, forwarded.
    FORWARDED = 0x31 "Forwarded packet" "unit" => "unit";
    /// A packet of a flow that belongs to the receiver.
    PASSED = 0x40 "Passed packet" "dispatcher" => "dispatcher";
    /// A flow of the sender has this key.
    CLAIM = 0x41 "Claim" "dispatcher" => "dispatcher";
    /// All claims up to a number are known.
    GRANTED = 0x42 "Granted" "dispatcher" => "dispatcher";
    /// No flow of the sender has this key any more.
    RELEASED = 0x43 "Released" "dispatcher" => "dispatcher";
    /// The receiver has its units read this policy, and answers.
    PROPOSE = 0x60 "Policy proposed" "dispatcher" => "dispatcher";
    /// The sender can run the proposed policy, or why not.
    PROPOSED = 0x61 "Proposal answered" "dispatcher" => "dispatcher";
    /// The proposed policy holds from now on.
    COMMIT = 0x62 "Policy holds" "dispatcher" => "dispatcher";
    /// The proposed policy is void.
    ABORT = 0x63 "Proposal void" "dispatcher" => "dispatcher";
    /// The receiver sends the policy that it runs.
    WANTED = 0x64 "Policy asked" "dispatcher" => "dispatcher, unit";
    /// The policy that the sender runs, as texts.
    PRESENT = 0x65 "Present policy" "dispatcher, unit" => "dispatcher";
    /// Number and digest of the policy that the sender runs.
    RUNS = 0x66 "Policy run" "dispatcher" => "dispatcher, unit";
    /// The receiver sends the last lines of a flow's timeline.
    TIMELINE_ASKED = 0x67 "Timeline asked" "dispatcher" => "unit";
    /// The last lines of a flow's timeline at the sender.
    TIMELINE = 0x68 "Timeline" "unit" => "dispatcher";
    /// The number of packets that were taken over from the receiver.
    TAKEN = 0x6c "Taken over" "dispatcher" => "dispatcher";
    /// Figures of functions that have changed.
    FIGURES_CHANGED = 0x6d "Figures of functions" "unit" => "dispatcher";
    /// The receiver was drained, ends the link, and waits for the next one.
    PART = 0x70 "Part" "dispatcher" => "unit";
}

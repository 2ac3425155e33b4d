-- Fields of frames, and the names of their values.

local folder = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or ""
local declared = dofile(folder .. "rivulet_messages.lua")

local ROLES = { [0] = "dispatcher", "unit" }
local SIDES = { [0] = "inside", "outside" }
local OPTIONS = { "Short stamp", "Long stamp", "Flow key", "Length on the wire" }
local LINKS = { [0x6558] = "Ethernet" }

local f, fields = {}, {}
local function field(name, kind, title, ...)
    f[name] = ProtoField[kind]("rivulet." .. name, title, ...)
    fields[#fields + 1] = f[name]
end
field("kind", "uint8", "Kind", base.HEX, declared.kinds)
field("last", "uint64", "Last seq")
field("arrival", "uint64", "Arrival (ns)")
field("arrival_low", "uint32", "Arrival (ns, lowest 32 bits)")
field("targets", "uint8", "Targets of replicas", base.HEX)
field("at_once", "uint8", "Replicated at once")
field("unit", "uint16", "Unit")
field("previous", "uint16", "Previous owner")
field("again", "uint8", "Repeated")
field("to", "uint16", "Next owner")
field("has", "uint8", "Has a replica")
field("has_epoch", "uint32", "Epoch of the replica")
field("has_seq", "uint64", "Seq of the replica")
field("is_reported", "uint8", "Reported")
field("ahead", "uint64", "Seqs ahead of the watermark", base.HEX)
field("record", "bytes", "Flow record")
field("time", "uint64", "Time (ns)")
field("stage", "uint32", "Stage")
field("command", "string", "Command")
field("version_newest", "uint16", "Newest version")
field("version_oldest", "uint16", "Oldest version")
field("name", "string", "Name")
field("address", "string", "Address")
field("incarnation", "uint64", "Incarnation")
field("policy", "bytes", "Policy digest")
field("policy_number", "uint64", "Policy number")
field("hello_scope", "string", "Scope")
field("policy_text", "string", "Policy")
field("file_text", "string", "Text of a file")
field("fault", "string", "Fault")
field("role", "uint8", "Role", base.DEC, ROLES)
field("port", "uint16", "UDP port of links")
field("seed", "uint64", "Seed", base.HEX)
field("gap", "uint64", "Gap between flowlets (ns)")
field("copies", "uint8", "Copies")
field("deltas", "uint8", "Copies as deltas")
field("keeps_timeline", "uint8", "Keeps its timeline")
field("question", "uint64", "Number of the question")
field("lines_max", "uint32", "Limit on lines")
field("overwritten", "uint64", "Lines replaced by later ones")
field("given", "uint8", "Given")
field("pending", "uint64", "Packets that wait")
field("event", "string", "Event")
field("details", "string", "Details")
field("flags", "uint8", "Flags", base.HEX)
field("is_ready", "bool", "Ready", 8, nil, 1)
field("has_failed", "bool", "Failed", 8, nil, 2)
field("has_answered", "bool", "Answered", 8, nil, 4)
field("has_left", "bool", "Left", 8, nil, 8)
field("taken", "uint64", "Packets taken over")
field("is_last", "bool", "Last word", 8, nil, 1)
field("lost", "uint64", "Packets lost")
field("through", "uint64", "Packets finished")
field("forwarded", "uint64", "Packets forwarded to it")
field("received", "uint64", "Packets received from it")
field("is_cut", "uint8", "Lost from here")
field("is_complete", "uint8", "What left before is before it")
field("due", "uint64", "Next deadline (ns)")
field("count", "uint32", "Count")
field("identification", "uint32", "Identification of the datagram")
field("reversed", "uint8", "Reversed")
field("passed", "uint8", "Passed")
field("ingress", "uint16", "Ingress port")
field("egress", "uint16", "Egress port")
field("side", "uint8", "Side", base.DEC, SIDES)
field("side_bit", "uint8", "Side", base.DEC, SIDES, 0x80)
field("other_link", "bool", "Not Ethernet", 8, nil, 0x40)
field("link_type", "uint16", "Link type (LINKTYPE)")
field("protocol", "uint16", "Protocol", base.HEX, LINKS)
field("wire_len", "uint32", "Length on the wire")
field("offset", "uint16", "Offset of a header")
field("options_len", "uint8", "Length of options (4 bytes)", base.DEC, nil, 0x3f)
field("option_class", "uint16", "Class of the option", base.HEX)
field("option", "uint8", "Option", base.DEC, OPTIONS, 0x7f)
field("option_data", "bytes", "Data of the option")
field("end4", "ipv4", "Address of an end")
field("end6", "ipv6", "Address of an end")
field("end_port", "uint16", "Port of an end")
field("ip_protocol", "uint8", "IP protocol")
field("ip_version", "uint8", "IP version")
field("place", "uint16", "Tenant and segment", base.HEX)
field("scope", "uint64", "VLANs and virtual network", base.HEX)
field("number", "uint64", "Number")
field("drop_reason", "string", "Drop reason")
field("frame", "bytes", "Frame")
field("more", "bytes", "Fields of a later version")

-- Fields of messages that have no title of their own above are shown by their names.
local function add(list)
    for _, part in ipairs(list) do
        local name = part[1]
        if not f[name] then
            local title = name:sub(1, 1):upper() .. name:sub(2):gsub("_", " ")
            field(name, part[2], title, part.words and base.DEC or nil, part.words)
        end
        for _, case in pairs(part.cases or {}) do
            add(case)
        end
    end
end
local messages = {}
for _, of in ipairs({ "of_dispatcher", "of_unit", "of_peer" }) do
    local names = {}
    for tag, message in pairs(declared[of]) do
        names[tag] = message.name
        add(message.fields)
    end
    field(of, "uint8", "Message", base.DEC, names)
    messages[of] = declared[of]
end

return { f = f, all = fields, kinds = declared.kinds, messages = messages, options = OPTIONS }

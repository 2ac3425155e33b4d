-- Wireshark dissector of Rivulet's links between nodes.
--
--   tshark -X lua_script:rivulet.lua -o rivulet.keylog:keys.log -r capture.pcap
--
-- or copy the files of this folder to the personal Lua plugins of Wireshark (Help, About,
-- Folders). docs/debugging.md describes it.
--
-- Datagrams have a clear header; the rest is encrypted. A program with RIVULET_KEYLOG=FILE writes
-- the secrets of its links to this file. Links whose secrets are there are recognised by their
-- connection id; for others, "Decode As" shows the header.

local folder = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or ""
local crypto = dofile(folder .. "rivulet_crypto.lua")
local wire = dofile(folder .. "rivulet_wire.lua")

local VERSION, HEADER_LEN, TAG_LEN = 1, 18, 16
local FRAMES = {
    [0] = "Padding", "Block", "Message", "Fragment", "Packet", "Acknowledgement", "Ping",
    "Probe of a length", "Answer to a probe", "Part of a block", "Order",
    [0x58] = "Close",
}

local link = Proto("rivulet", "Rivulet link")
link.prefs.keylog = Pref.string("Secrets of links", os.getenv("RIVULET_KEYLOG") or "",
    "File that a program wrote with RIVULET_KEYLOG")

local f = {
    version = ProtoField.uint8("rivulet.version", "Version"),
    phase = ProtoField.uint8("rivulet.phase", "Key phase"),
    connection = ProtoField.uint64("rivulet.connection", "Connection id", base.HEX),
    datagram = ProtoField.uint64("rivulet.datagram", "Datagram number"),
    tag = ProtoField.bytes("rivulet.tag", "Tag"),
    encrypted = ProtoField.bytes("rivulet.encrypted", "Encrypted frames"),
    sender = ProtoField.string("rivulet.sender", "Sender"),
    receiver = ProtoField.string("rivulet.receiver", "Receiver"),
    type = ProtoField.uint8("rivulet.type", "Type", base.DEC, FRAMES),
    len = ProtoField.uint16("rivulet.len", "Length"),
    block = ProtoField.uint64("rivulet.block", "Block"),
    block_len = ProtoField.uint16("rivulet.block.len", "Length of the block"),
    offset = ProtoField.uint16("rivulet.block.offset", "Offset in the block"),
    size = ProtoField.uint16("rivulet.size", "Length of the probe"),
    order = ProtoField.uint32("rivulet.order", "Messages of stream 0 before the block"),
    stream = ProtoField.uint16("rivulet.stream", "Stream"),
    message = ProtoField.uint32("rivulet.message", "Number in the stream"),
    total = ProtoField.uint32("rivulet.total", "Length of the message"),
    position = ProtoField.uint32("rivulet.position", "Position in the message"),
    bytes = ProtoField.bytes("rivulet.bytes", "Bytes"),
    completed = ProtoField.framenum("rivulet.completed", "Message complete in"),
    largest = ProtoField.uint64("rivulet.ack.largest", "Greatest datagram number"),
    age = ProtoField.uint32("rivulet.ack.age", "Age (ns)"),
    granted = ProtoField.uint64("rivulet.ack.granted", "Cost granted"),
    before = ProtoField.uint16("rivulet.ack.before", "Numbers before without a gap"),
    missing = ProtoField.uint16("rivulet.ack.missing", "Numbers missing"),
    received = ProtoField.uint16("rivulet.ack.received", "Numbers received"),
}
for _, of_link in pairs(f) do
    wire.fields[#wire.fields + 1] = of_link
end
link.fields = wire.fields

local e = {
    forged = ProtoExpert.new("rivulet.forged", "The tag does not fit: forged, or other secrets",
        expert.group.DECRYPTION, expert.severity.ERROR),
    malformed = ProtoExpert.new("rivulet.malformed", "Malformed", expert.group.MALFORMED,
        expert.severity.ERROR),
}
link.experts = { e.forged, e.malformed }

-- Directions of links by connection id: names of the ends, secrets and ciphers by phase, messages
-- that are divided.
local directions, keylog_len = {}, 0

local function from_hex(text)
    return (text:gsub("%x%x", function(pair)
        return string.char(tonumber(pair, 16))
    end))
end

local function read_keylog()
    local file = link.prefs.keylog ~= "" and io.open(link.prefs.keylog, "r")
    if not file then
        return
    end
    local len = file:seek("end")
    if len ~= keylog_len then
        keylog_len = len
        file:seek("set")
        for line in file:lines() do
            local id, secret, sender, receiver =
                line:match("^RIVULET_LINK_SECRET (%x+) (%x+) (%S+) (%S+)")
            if id and #id == 16 and #secret == 64 and not directions[from_hex(id)] then
                directions[from_hex(id)] = {
                    sender = sender, receiver = receiver, secrets = { [0] = from_hex(secret) },
                    ciphers = {}, phase = 0, messages = {},
                }
            end
        end
    end
    file:close()
end

-- The file grows while programs run.
local function direction_of(id)
    if not directions[id] then
        read_keylog()
    end
    return directions[id]
end

function link.init()
    directions, keylog_len = {}, 0
end

local function cipher_of(direction, phase)
    if not direction.ciphers[phase] then
        for at = 1, phase do
            direction.secrets[at] = direction.secrets[at]
                or crypto.expand(direction.secrets[at - 1], "rivulet link next", 32)
        end
        local secret = direction.secrets[phase]
        local cipher = crypto.cipher(crypto.expand(secret, "rivulet link key", 32))
        cipher.iv = crypto.expand(secret, "rivulet link iv", 12)
        direction.ciphers[phase] = cipher
    end
    return direction.ciphers[phase]
end

-- Returns the plain text, or nil if the tag does not fit.
local function open(direction, datagram)
    -- The header has 8 bits of the phase: it is the one nearest to the latest.
    local phase = direction.phase + (datagram:byte(2) - direction.phase + 128) % 256 - 128
    if phase < 0 then
        return nil
    end
    local cipher, nonce = cipher_of(direction, phase), {}
    local input = string.char(0, 0, math.floor(phase / 256) % 256, phase % 256)
        .. datagram:sub(11, 18)
    for at = 1, 12 do
        nonce[at] = string.char(bit.bxor(cipher.iv:byte(at), input:byte(at)))
    end
    local text = datagram:sub(HEADER_LEN + 1, -TAG_LEN - 1)
    local plain = crypto.open(cipher, table.concat(nonce), datagram:sub(1, HEADER_LEN), text,
        datagram:sub(-TAG_LEN))
    direction.phase = plain and math.max(direction.phase, phase) or direction.phase
    return plain
end

local function add_message(tvb, pinfo, tree, root, notes)
    local summary, fault = wire.dissect(tvb, pinfo, tree, root)
    if fault then
        tree:add_proto_expert_info(e.malformed, fault)
    end
    notes[#notes + 1] = summary
end

-- Takes the bytes from `at` on of something divided, nil if there are none. Returns the frame in
-- which it was complete, and its bytes if they completed it.
local function join(direction, pinfo, id, total, at, bytes)
    local whole = direction.messages[id]
    if not whole then
        whole = { len = 0, parts = {} }
        direction.messages[id] = whole
    end
    if not whole.completed and not whole.parts[at] and bytes then
        whole.parts[at], whole.len = bytes, whole.len + #bytes
        if whole.len == total then
            local parts, next = {}, 0
            while whole.parts[next] do
                parts[#parts + 1] = whole.parts[next]
                next = next + #whole.parts[next]
            end
            whole.bytes, whole.parts = table.concat(parts), {}
            whole.completed, whole.at = pinfo.number, at
        end
    end
    local is_last = whole.completed == pinfo.number and whole.at == at
    return whole.completed, is_last and whole.bytes
end

-- Takes a part of a divided message. Returns the message once all parts are there.
local function add_fragment(direction, pinfo, range, tree)
    tree:add(f.total, range(6, 4))
    tree:add(f.position, range(10, 4))
    local len = range:len() - 14
    if len > 0 then
        tree:add(f.bytes, range(14, len))
    end
    local completed, message = join(direction, pinfo, range(0, 6):raw(), range(6, 4):uint(),
        range(10, 4):uint(), len > 0 and range(14, len):raw())
    if completed then
        tree:add(f.completed, completed):set_generated()
    end
    return message and ByteArray.new(message, true):tvb("Message") or nil
end

-- Takes a part of a divided block. Returns the block once all parts are there.
local function add_part(direction, pinfo, range, tree)
    tree:add(f.block, range(0, 8))
    tree:add(f.block_len, range(8, 2))
    tree:add(f.offset, range(10, 2))
    local len = range:len() - 12
    local _, block = join(direction, pinfo, "block " .. range(0, 8):raw(), range(8, 2):uint(),
        range(10, 2):uint(), len > 0 and range(12, len):raw())
    return block and ByteArray.new(block, true):tvb("Block") or nil
end

local function add_ack(range, tree)
    for _, field in ipairs({ { f.largest, 0, 8 }, { f.age, 8, 4 }, { f.granted, 12, 8 },
        { f.before, 20, 2 } }) do
        tree:add(field[1], range(field[2], field[3]))
    end
    for at = 22, range:len() - 4, 4 do
        tree:add(f.missing, range(at, 2))
        tree:add(f.received, range(at + 2, 2))
    end
end

local LEAST = { [1] = 8, [2] = 6, [3] = 14, [5] = 22, [7] = 2, [8] = 2, [9] = 12, [10] = 4 }

-- Adds the frames of a datagram or a block.
local function add_frames(direction, tvb, pinfo, tree, root, notes)
    local at = 0
    while at < tvb:len() do
        local kind = tvb(at, 1):uint()
        if kind == 0 then
            tree:add(f.type, tvb(at, 1))
            return
        end
        local len = at + 3 <= tvb:len() and tvb(at + 1, 2):uint() or tvb:len()
        if at + 3 + len > tvb:len() or len < (LEAST[kind] or 0) then
            tree:add_proto_expert_info(e.malformed, "a frame of the link is truncated")
            return
        end
        local name = FRAMES[kind] or ("Unknown frame %d"):format(kind)
        local item = tree:add(tvb(at, 3 + len), name)
        item:add(f.type, tvb(at, 1))
        item:add(f.len, tvb(at + 1, 2))
        local range = len > 0 and tvb(at + 3, len)
        if kind == 1 then
            item:add(f.block, range(0, 8))
            if len > 8 then
                add_frames(direction, range(8):tvb(), pinfo, item, root, notes)
            end
        elseif kind == 2 or kind == 3 then
            item:add(f.stream, range(0, 2))
            item:add(f.message, range(2, 4))
            local message = kind == 3 and add_fragment(direction, pinfo, range, item)
            if kind == 2 and len > 6 then
                message = range(6):tvb()
            elseif kind == 3 and not message then
                notes[#notes + 1] = "Fragment"
            end
            if message then
                add_message(message, pinfo, item:add(message(), "Frame"), root, notes)
            end
        elseif kind == 4 then
            if range then
                add_message(range:tvb(), pinfo, item:add(range, "Frame"), root, notes)
            end
        elseif kind == 5 then
            add_ack(range, item)
            notes[#notes + 1] = "Ack " .. tostring(range(0, 8):uint64())
        elseif kind == 6 then
            notes[#notes + 1] = "Ping"
        elseif kind == 7 or kind == 8 then
            item:add(f.size, range(0, 2))
            notes[#notes + 1] = (kind == 7 and "Probe " or "Answer ") .. range(0, 2):uint()
        elseif kind == 9 then
            local block = add_part(direction, pinfo, range, item)
            notes[#notes + 1] = "Part of block " .. tostring(range(0, 8):uint64())
            if block then
                add_frames(direction, block, pinfo, item, root, notes)
            end
        elseif kind == 10 then
            item:add(f.order, range(0, 4))
        elseif kind == 0x58 then
            notes[#notes + 1] = "Close"
        end
        at = at + 3 + len
    end
end

local function add_datagram(tvb, pinfo, root, notes)
    local tree, len = root:add(link, tvb()), tvb:len() - HEADER_LEN - TAG_LEN
    tree:add(f.version, tvb(0, 1))
    tree:add(f.phase, tvb(1, 1))
    tree:add(f.connection, tvb(2, 8))
    tree:add(f.datagram, tvb(10, 8))
    local direction = direction_of(tvb(2, 8):raw())
    if direction then
        tree:add(f.sender, direction.sender):set_generated()
        tree:add(f.receiver, direction.receiver):set_generated()
        tree:append_text(", " .. direction.sender .. " to " .. direction.receiver)
    end
    tree:append_text(", datagram " .. tostring(tvb(10, 8):uint64()))
    local plain = direction and open(direction, tvb:raw())
    tree:add(f.tag, tvb(tvb:len() - TAG_LEN, TAG_LEN))
    if not plain then
        if len > 0 then
            tree:add(f.encrypted, tvb(HEADER_LEN, len))
        end
        if direction then
            tree:add_proto_expert_info(e.forged)
        end
        notes[#notes + 1] = "Encrypted"
    elseif #plain > 0 then
        add_frames(direction, ByteArray.new(plain, true):tvb("Decrypted"), pinfo, tree, root, notes)
    end
end

-- Returns the length of the first datagram. A capture at the sender may show several as one, which
-- the kernel or the interface divides later (GSO): the next one has the next number.
local function first_len(bytes)
    local number, carry = bytes:sub(11, 18), ""
    for at = 8, 1, -1 do
        if number:byte(at) < 255 then
            local next = number:sub(1, at - 1) .. string.char(number:byte(at) + 1) .. carry
            local phase = bytes:byte(2)
            for _, of_next in ipairs({ phase, (phase + 1) % 256 }) do
                local header = string.char(VERSION, of_next) .. bytes:sub(3, 10) .. next
                local start = bytes:find(header, HEADER_LEN + TAG_LEN + 1, true)
                if start then
                    return start - 1
                end
            end
            return #bytes
        end
        carry = carry .. "\0"
    end
    return #bytes
end

function link.dissector(tvb, pinfo, root)
    if tvb:len() < HEADER_LEN + TAG_LEN or tvb(0, 1):uint() ~= VERSION then
        return 0
    end
    local notes, at = {}, 0
    while at < tvb:len() and tvb:len() - at >= HEADER_LEN + TAG_LEN do
        local len = first_len(tvb:raw(at))
        add_datagram(tvb(at, len):tvb(), pinfo, root, notes)
        at = at + len
    end
    pinfo.cols.protocol = "Rivulet"
    pinfo.cols.info = table.concat(notes, ", ")
    return tvb:len()
end

link:register_heuristic("udp", function(tvb, pinfo, root)
    local is_link = tvb:len() >= HEADER_LEN + TAG_LEN and tvb(0, 1):uint() == VERSION
        and direction_of(tvb(2, 8):raw()) ~= nil
    if is_link then
        link.dissector(tvb, pinfo, root)
    end
    return is_link
end)
DissectorTable.get("udp.port"):add_for_decode_as(link)

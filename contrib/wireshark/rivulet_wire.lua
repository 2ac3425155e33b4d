-- Frames of dispatchers and units: kinds, stamps, packets (crates/cluster/src/wire.rs).
--
-- `wire.fields` has the fields to be registered, `wire.dissect(tvb, pinfo, tree)` adds a frame to a
-- tree and returns a summary.

local folder = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or ""
local fields = dofile(folder .. "rivulet_fields.lua")
local f, KINDS, OPTIONS = fields.f, fields.kinds, fields.options
local MESSAGES = fields.messages

local TRUNCATED = "the frame is truncated"
local ETHERNET, ETHERNET_LINK = 0x6558, 1
local SIZES = { uint8 = 1, uint16 = 2, uint32 = 4, uint64 = 8 }
local NO_TARGETS, ALL_TARGETS = 0xff, 0xfe
local ADDRESS_NONE = ("\0"):rep(12)
local MAPPED = ("\0"):rep(10) .. "\255\255"

-- Reads the fields of a frame in order, and adds them to a tree.
local Reader = {}
Reader.__index = Reader

local function reader(tvb, tree)
    return setmetatable({ tvb = tvb, at = 0, len = tvb:len(), tree = tree }, Reader)
end

function Reader:take(len)
    if self.at + len > self.len then
        error({ fault = TRUNCATED })
    end
    self.at = self.at + len
    return self.tvb(self.at - len, len)
end

function Reader:add(name, len)
    local range = self:take(len)
    local item = self.tree:add(f[name], range)
    if len > 8 then
        return nil, item
    end
    return (len <= 4) and range:uint() or tostring(range:uint64()), item
end

function Reader:sized(name)
    local len = self:take(4):uint()
    local range = self:take(len)
    if len > 0 then
        self.tree:add(f[name], range)
    end
    return range
end

function Reader:count(title)
    local range = self:take(4)
    self.tree:add(f.count, range):prepend_text(title .. ", ")
    if range:uint() > self.len - self.at then
        error({ fault = TRUNCATED })
    end
    return range:uint()
end

-- Runs `read` with a subtree of the bytes that it reads.
function Reader:within(title, read)
    local outer, start = self.tree, self.at
    self.tree = outer:add(self.tvb(start, 0), title)
    local text = read()
    self.tree:set_len(self.at - start)
    if text then
        self.tree:append_text(": " .. text)
    end
    self.tree = outer
    return text
end

function Reader:flow()
    return self:add("flow_index", 4) .. "." .. self:add("flow_generation", 4)
end

function Reader:handover()
    local kind = self:add("handover", 1)
    if kind == 1 then
        self:add("previous", 2)
        self:add("last", 8)
    elseif kind ~= 0 then
        error({ fault = "the frame has an invalid handover" })
    end
end

function Reader:end_address()
    local range = self:take(16)
    local first = range(0, 12):raw()
    if first == MAPPED or first == ADDRESS_NONE then
        self.tree:add(f.end4, range(12, 4))
    else
        self.tree:add(f.end6, range)
    end
end

function Reader:key(title)
    self:within(title or "Flow key", function()
        self:end_address()
        self:end_address()
        self:add("end_port", 2)
        self:add("end_port", 2)
        self:add("ip_protocol", 1)
        self:add("ip_version", 1)
        self.tree:add_le(f.place, self:take(2))
        self.tree:add_le(f.scope, self:take(8))
    end)
end

function Reader:short_stamp()
    local index, generation = self:add("flow_index", 4), self:add("flow_generation", 2)
    self:add("epoch", 2)
    local seq = self:add("seq", 4)
    self:add("arrival_low", 4)
    return "flow " .. index .. "." .. generation .. " seq " .. seq
end

function Reader:long_stamp()
    local flow = self:flow()
    self:add("epoch", 4)
    local seq = self:add("seq", 8)
    self:add("arrival", 8)
    self:handover()
    local targets = self:add("targets", 1)
    if targets ~= NO_TARGETS then
        self:add("at_once", 1)
        for _ = 1, targets == ALL_TARGETS and 0 or targets do
            self:add("unit", 2)
        end
    end
    return "flow " .. flow .. " seq " .. seq
end

-- Hands a frame over to the dissector of its first header. What that does to the columns and
-- addresses of the packet is undone: they are those of the link.
local function hand_over(tvb, range, is_ethernet, link, pinfo, tree)
    if range:len() == 0 then
        return
    end
    local name = is_ethernet and "eth_withoutfcs" or nil
    if link == 101 and not is_ethernet then
        name = range(0, 1):bitfield(0, 4) == 6 and "ipv6" or "ip"
    end
    local dissector = name and Dissector.get(name)
    if not dissector then
        tree:add(f.frame, range)
        return
    end
    local src, dst = pinfo.src, pinfo.dst
    local source_port, destination_port = pinfo.src_port, pinfo.dst_port
    pcall(dissector.call, dissector, range:tvb(), pinfo, tree)
    pinfo.src, pinfo.dst = src, dst
    pinfo.src_port, pinfo.dst_port = source_port, destination_port
end

function Reader:is_empty()
    return self.at >= self.len
end

function Reader:rest()
    local range = self.tvb(self.at, self.len - self.at)
    self.at = self.len
    return range
end

-- A packet in Geneve (RFC 8926).
function Reader:packet(pinfo, root)
    local text, is_ethernet, protocol
    self:within("Geneve", function()
        local first = self:take(1)
        self.tree:add(f.options_len, first)
        self:take(1)
        protocol = self:add("protocol", 2)
        self:add("ingress", 2)
        local marks = self:take(1)
        self.tree:add(f.side_bit, marks)
        self.tree:add(f.other_link, marks)
        is_ethernet = not marks:bitfield(1, 1) or marks:bitfield(1, 1) == 0
        self:take(1)
        local last = self.at + 4 * first:bitfield(2, 6)
        while self.at < last do
            self:within("Option", function()
                local class = self:add("option_class", 2)
                local kind = self:take(1)
                self.tree:add(f.option, kind)
                local len = 4 * self:take(1):bitfield(3, 5)
                local after, form = self.at + len, class == 0xfff5 and kind:bitfield(1, 7) or 0
                if form == 1 then
                    text = self:short_stamp()
                elseif form == 2 then
                    text = self:long_stamp()
                elseif form == 3 then
                    self:key()
                    self:add("reversed", 1)
                elseif form == 4 then
                    self:add("wire_len", 4)
                elseif len > 0 then
                    self:add("option_data", len)
                end
                self.at = after
                return OPTIONS[form]
            end)
        end
    end)
    hand_over(self.tvb, self:rest(), is_ethernet, protocol, pinfo, root)
    return text
end

-- Reads fields as they are declared, and notes the values of numbers.
function Reader:fields(list, values)
    for _, field in ipairs(list) do
        local name, kind = field[1], field[2]
        if field.later and self:is_empty() then
            return
        elseif kind == "bytes" then
            self:sized(name)
        else
            local value = self:add(name, SIZES[kind])
            values[name] = value
            if field.words and not field.words[value] then
                error({ fault = "the frame has an invalid " .. name })
            end
            self:fields(field.cases and field.cases[value] or {}, values)
            for _ = 1, field.each and value or 0 do
                self:fields(field.each, values)
            end
        end
    end
end

-- Reads a message. `of`: the kind of its sender. Returns its name and its flow.
function Reader:message(of)
    local message, values = MESSAGES[of][self:add(of, 1)], {}
    if not message then
        return nil
    end
    self:fields(message.fields, values)
    if not values.flow_index then
        return message.name
    end
    return message.name .. " flow " .. values.flow_index .. "." .. values.flow_generation
end

function Reader:report()
    local flags = self:take(1)
    local tree = self.tree:add(f.flags, flags)
    for _, name in ipairs({ "is_ready", "has_failed", "has_answered", "has_left" }) do
        tree:add(f[name], flags)
    end
    local unit = self:add("unit", 2)
    self:add("lost", 8)
    local through = self:add("through", 8)
    self:add("due", 8)
    for _ = 1, self:count("Aliases") do
        self:within("Alias", function()
            local flow = self:flow()
            self:key("Alias")
            return "flow " .. flow
        end)
    end
    for _ = 1, self:count("Fragments") do
        self:within("Fragment", function()
            self:key()
            self:add("reversed", 1)
            self:add("identification", 4)
            self:add("time", 8)
            self:add("passed", 1)
            self:add("reversed", 1)
            self:key("Key that it left with")
        end)
    end
    local texts = {}
    for _ = 1, self:count("Messages") do
        texts[#texts + 1] = self:within("Message", function()
            -- Its length is unknown, and with it the place of the next one.
            return self:message("of_unit") or error({ fault = "the frame has an invalid message" })
        end)
    end
    for _ = 1, self:count("Reports before") do
        self:within("Report before", function()
            local before = self:add("unit", 2)
            self:add("through", 8)
            return "unit " .. before
        end)
    end
    for _ = 1, self:count("Units with forwarded packets") do
        self:within("Forwarded packets", function()
            local other = self:add("unit", 2)
            self:add("forwarded", 8)
            self:add("received", 8)
            self:add("is_cut", 1)
            return "unit " .. other
        end)
    end
    self:add("is_complete", 1)
    local text = "unit " .. unit .. " through " .. through
    return #texts > 0 and text .. ", " .. table.concat(texts, ", ") or text
end

function Reader:output(pinfo, root)
    self:add("arrival", 8)
    self:add("ingress", 2)
    local egress = self:add("egress", 2)
    local link = self:add("link_type", 2)
    self:add("wire_len", 4)
    for _ = 1, 3 do
        self:add("offset", 2)
    end
    self:add("side", 1)
    hand_over(self.tvb, self:rest(), link == ETHERNET_LINK, link, pinfo, root)
    return "port " .. egress
end

function Reader:figures()
    for _ = 1, self:count("Counters") do
        self:add("number", 8)
    end
    for _, title in ipairs({ "Packets out", "Packets generated", "Packets pending", "Bytes out",
        "Flows started", "Flows in the table" }) do
        local _, item = self:add("number", 8)
        item:prepend_text(title .. ", ")
    end
    for _ = 1, self:count("Drops") do
        self:add("number", 8)
        self:sized("drop_reason")
    end
end

local function time(r)
    return r:add("time", 8)
end

local function forwarded(r, pinfo, root)
    return r:packet(pinfo, root)
end

local READ

-- Reads the kind of a frame. Returns its name, and what reads the rest.
function Reader:kind()
    local kind = self:add("kind", 1)
    return KINDS[kind] or ("Frame of unknown kind 0x%02x"):format(kind), READ[kind]
end

local function relayed(r, pinfo, root)
    local unit, frame = r:add("unit", 2), nil
    r:within("Frame", function()
        local name, read = r:kind()
        local text = read and read(r, pinfo, root)
        frame = text and name .. " " .. text or name
        return frame
    end)
    return "unit " .. unit .. ": " .. frame
end

-- A policy by number and digest.
local function numbered(r)
    local number = r:add("policy_number", 8)
    r:add("policy", 32)
    return "number " .. tostring(number)
end

local function policy_texts(r)
    local name = r:sized("name"):string()
    r:sized("policy_text")
    for _ = 1, r:count("Files") do
        r:within("File", function()
            local file = r:sized("name"):string()
            r:sized("file_text")
            return file
        end)
    end
    return name
end

local function applied(r)
    local number = numbered(r)
    return policy_texts(r) .. ", " .. number
end

READ = {
    [0x01] = function(r)
        r:add("version_newest", 2)
        r:add("version_oldest", 2)
        local name = r:sized("name"):string()
        r:add("incarnation", 8)
        r:add("policy", 32)
        r:add("role", 1)
        r:add("port", 2)
        if not r:is_empty() then
            r:sized("hello_scope")
        end
        if not r:is_empty() then
            return name .. ", policy " .. numbered(r)
        end
        return name
    end,
    [0x10] = time,
    [0x11] = time,
    [0x13] = forwarded,
    [0x14] = function(r)
        r:add("time", 8)
        return r:message("of_dispatcher") or "unknown message"
    end,
    [0x15] = function(r)
        local stage = r:add("stage", 4)
        return "stage " .. stage .. ": " .. r:sized("command"):string()
    end,
    [0x1a] = function(r)
        local count = r:count("Units")
        for _ = 1, count do
            r:within("Unit", function()
                local unit = r:add("unit", 2)
                local name = r:sized("name"):string()
                return unit .. ", " .. name .. " at " .. r:sized("address"):string()
            end)
        end
        return count .. " units"
    end,
    [0x1b] = function(r)
        local unit = r:add("unit", 2)
        r:add("seed", 8)
        r:add("gap", 8)
        r:add("copies", 1)
        r:add("deltas", 1)
        if not r:is_empty() then
            r:add("keeps_timeline", 1)
        end
        return "unit " .. unit
    end,
    [0x1d] = function(r)
        local name = policy_texts(r)
        if not r:is_empty() then
            r:add("policy", 32)
        end
        return name
    end,
    [0x1e] = function(r)
        r:add("policy", 32)
        if not r:is_empty() then
            return "number " .. tostring(r:add("policy_number", 8))
        end
    end,
    [0x1f] = relayed,
    [0x20] = Reader.report,
    [0x21] = Reader.output,
    [0x22] = Reader.figures,
    [0x24] = function(r)
        r:add("policy", 32)
        local fault = r:sized("fault")
        if not r:is_empty() then
            r:add("policy", 32)
        end
        return fault:len() > 0 and fault:string() or nil
    end,
    [0x26] = relayed,
    [0x30] = function(r)
        local unit = r:add("unit", 2)
        r:add("through", 8)
        local text = r:message("of_peer") or "unknown message"
        if not r:is_empty() then
            r:add("time", 8)
        end
        return "unit " .. unit .. ": " .. text
    end,
    [0x31] = forwarded,
    [0x67] = function(r)
        local question = r:add("question", 8)
        local flow = r:flow()
        r:add("lines_max", 4)
        return "flow " .. flow .. ", question " .. question
    end,
    [0x68] = function(r)
        local question = r:add("question", 8)
        r:add("overwritten", 8)
        local count = r:count("Lines")
        for _ = 1, count do
            r:within("Line", function()
                r:add("time", 8)
                local unit = r:add("unit", 2)
                if r:add("given", 1) == 1 then
                    r:flow()
                end
                for _, part in ipairs({ { "epoch", 4 }, { "seq", 8 }, { "pending", 8 } }) do
                    if r:add("given", 1) == 1 then
                        r:add(part[1], part[2])
                    end
                end
                local event = r:sized("event"):string()
                r:sized("details")
                return "unit " .. unit .. " " .. event
            end)
        end
        return count .. " lines, question " .. question
    end,
    [0x6c] = function(r)
        local taken = r:add("taken", 8)
        r:add("is_last", 1)
        return taken .. " packets"
    end,
    [0x60] = applied,
    [0x61] = function(r)
        local number = numbered(r)
        local fault = r:sized("fault")
        return fault:len() > 0 and number .. ": " .. fault:string() or number
    end,
    [0x62] = numbered,
    [0x63] = numbered,
    [0x65] = applied,
    [0x66] = numbered,
}

-- Adds a frame to `tree`, and the packet in it to `root`. Returns a summary, and a fault if the
-- frame is malformed.
local function dissect(tvb, pinfo, tree, root)
    local r = reader(tvb, tree)
    local name, text = "Frame without kind", nil
    local done, fault = pcall(function()
        local read
        name, read = r:kind()
        tree:set_text(name)
        text = read and read(r, pinfo, root)
        if r.at < r.len then
            tree:add(f.more, r:rest())
        end
    end)
    local summary = text and name .. " " .. text or name
    tree:set_text(summary)
    if done then
        return summary
    end
    return summary, type(fault) == "table" and fault.fault or tostring(fault)
end

return { fields = fields.all, dissect = dissect }

-- AES-256-GCM (NIST SP 800-38D) and HKDF-Expand with SHA-256 (RFC 5869), in plain Lua: Wireshark
-- before 4.4 gives scripts no ciphers. Slow (about 5 ms for a full datagram), which is enough for
-- captures that people read.

local band, bxor, bnot, ror = bit.band, bit.bxor, bit.bnot, bit.ror
local lshift, rshift, tobit = bit.lshift, bit.rshift, bit.tobit

-- Numbers of 32 bits, big-endian.
local function word_at(bytes, at)
    local a, b, c, d = bytes:byte(at, at + 3)
    return bxor(lshift(a, 24), lshift(b, 16), lshift(c, 8), d)
end

local function bytes_of(word)
    return string.char(rshift(word, 24), band(rshift(word, 16), 255), band(rshift(word, 8), 255),
        band(word, 255))
end

-- SHA-256 (FIPS 180-4): its constants are the fractions of roots of the first primes.
local K, INITIAL = {}, {}
do
    local function fraction(number)
        return tobit(math.floor((number - math.floor(number)) * 4294967296))
    end
    local candidate = 2
    while #K < 64 do
        local is_prime = true
        for divisor = 2, math.floor(math.sqrt(candidate)) do
            is_prime = is_prime and candidate % divisor ~= 0
        end
        if is_prime then
            if #INITIAL < 8 then
                INITIAL[#INITIAL + 1] = fraction(math.sqrt(candidate))
            end
            K[#K + 1] = fraction(candidate ^ (1 / 3))
        end
        candidate = candidate + 1
    end
end

local function sha256(text)
    local zeros = (55 - #text) % 64
    local padded = text .. "\128" .. ("\0"):rep(zeros + 4) .. bytes_of(tobit(#text * 8))
    local state, w = {}, {}
    for i = 1, 8 do
        state[i] = INITIAL[i]
    end
    for block = 1, #padded, 64 do
        for i = 1, 16 do
            w[i] = word_at(padded, block + 4 * (i - 1))
        end
        for i = 17, 64 do
            local x, y = w[i - 15], w[i - 2]
            local s0 = bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
            local s1 = bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
            w[i] = tobit(w[i - 16] + s0 + w[i - 7] + s1)
        end
        local a, b, c, d, e, f, g, h = state[1], state[2], state[3], state[4], state[5], state[6],
            state[7], state[8]
        for i = 1, 64 do
            local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
            local choice = bxor(band(e, f), band(bnot(e), g))
            local first = tobit(h + s1 + choice + K[i] + w[i])
            local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
            local majority = bxor(band(a, b), band(a, c), band(b, c))
            h, g, f, e = g, f, e, tobit(d + first)
            d, c, b, a = c, b, a, tobit(first + s0 + majority)
        end
        for i, word in ipairs({ a, b, c, d, e, f, g, h }) do
            state[i] = tobit(state[i] + word)
        end
    end
    local out = {}
    for i = 1, 8 do
        out[i] = bytes_of(state[i])
    end
    return table.concat(out)
end

local function xor_all(text, byte)
    return (text:gsub(".", function(char)
        return string.char(bxor(char:byte(), byte))
    end))
end

-- Returns the first `len` bytes, up to 32, that HKDF expands a secret of up to 64 bytes to.
local function expand(secret, label, len)
    local key = secret .. ("\0"):rep(64 - #secret)
    local inner = sha256(xor_all(key, 0x36) .. label .. "\1")
    return sha256(xor_all(key, 0x5c) .. inner):sub(1, len)
end

-- AES (FIPS 197): the S-box, and tables of SubBytes, ShiftRows and MixColumns in one.
local SBOX, T0, T1, T2, T3 = {}, {}, {}, {}, {}
do
    local function double(x)
        return band(bxor(lshift(x, 1), band(x, 128) ~= 0 and 0x1b or 0), 255)
    end
    local function rotate(x, by)
        return band(bxor(lshift(x, by), rshift(x, 8 - by)), 255)
    end
    local p, q = 1, 1
    repeat
        p = bxor(p, double(p)) -- times 3
        q = bxor(q, lshift(q, 1)) -- divided by 3
        q = bxor(q, lshift(q, 2))
        q = band(bxor(q, lshift(q, 4)), 255)
        q = bxor(q, band(q, 128) ~= 0 and 9 or 0)
        SBOX[p] = bxor(q, rotate(q, 1), rotate(q, 2), rotate(q, 3), rotate(q, 4), 0x63)
    until p == 1
    SBOX[0] = 0x63
    for i = 0, 255 do
        local s = SBOX[i]
        local twice = double(s)
        local word = bxor(lshift(twice, 24), lshift(s, 16), lshift(s, 8), bxor(twice, s))
        T0[i], T1[i], T2[i], T3[i] = word, ror(word, 8), ror(word, 16), ror(word, 24)
    end
end

local function substitute(word)
    return bxor(lshift(SBOX[rshift(word, 24)], 24), lshift(SBOX[band(rshift(word, 16), 255)], 16),
        lshift(SBOX[band(rshift(word, 8), 255)], 8), SBOX[band(word, 255)])
end

-- Returns the 60 words of the round keys of a key of 32 bytes.
local function schedule(key)
    local w, constant = {}, 1
    for i = 0, 7 do
        w[i] = word_at(key, 4 * i + 1)
    end
    for i = 8, 59 do
        local word = w[i - 1]
        if i % 8 == 0 then
            word = bxor(substitute(bit.rol(word, 8)), lshift(constant, 24))
            constant = constant * 2
        elseif i % 8 == 4 then
            word = substitute(word)
        end
        w[i] = bxor(w[i - 8], word)
    end
    return w
end

-- Encrypts a block of four words.
local function encrypt(w, a, b, c, d)
    a, b, c, d = bxor(a, w[0]), bxor(b, w[1]), bxor(c, w[2]), bxor(d, w[3])
    local function column(i, x, y, z, u)
        return bxor(T0[rshift(x, 24)], T1[band(rshift(y, 16), 255)], T2[band(rshift(z, 8), 255)],
            T3[band(u, 255)], w[i])
    end
    for i = 4, 52, 4 do
        a, b, c, d = column(i, a, b, c, d), column(i + 1, b, c, d, a), column(i + 2, c, d, a, b),
            column(i + 3, d, a, b, c)
    end
    local function last(i, x, y, z, u)
        return bxor(lshift(SBOX[rshift(x, 24)], 24), lshift(SBOX[band(rshift(y, 16), 255)], 16),
            lshift(SBOX[band(rshift(z, 8), 255)], 8), SBOX[band(u, 255)], w[i])
    end
    return last(56, a, b, c, d), last(57, b, c, d, a), last(58, c, d, a, b), last(59, d, a, b, c)
end

-- Returns the multiples of a hash key by the powers of x.
local function powers(a, b, c, d)
    local table_of = {}
    for i = 0, 127 do
        table_of[i] = { a, b, c, d }
        local carry = band(d, 1)
        d = bxor(rshift(d, 1), lshift(c, 31))
        c = bxor(rshift(c, 1), lshift(b, 31))
        b = bxor(rshift(b, 1), lshift(a, 31))
        a = bxor(rshift(a, 1), carry ~= 0 and 0xe1000000 or 0)
    end
    return table_of
end

-- Returns the hash of text whose length is a multiple of 16.
local function ghash(multiples, text)
    local a, b, c, d = 0, 0, 0, 0
    for at = 1, #text, 16 do
        local words = { bxor(a, word_at(text, at)), bxor(b, word_at(text, at + 4)),
            bxor(c, word_at(text, at + 8)), bxor(d, word_at(text, at + 12)) }
        a, b, c, d = 0, 0, 0, 0
        for i = 0, 3 do
            local word = words[i + 1]
            for j = 0, 31 do
                if band(word, lshift(1, 31 - j)) ~= 0 then
                    local multiple = multiples[32 * i + j]
                    a, b, c, d = bxor(a, multiple[1]), bxor(b, multiple[2]), bxor(c, multiple[3]),
                        bxor(d, multiple[4])
                end
            end
        end
    end
    return a, b, c, d
end

local function padded(text)
    return text .. ("\0"):rep(-#text % 16)
end

-- Returns a cipher for a key of 32 bytes.
local function cipher(key)
    local w = schedule(key)
    return { w = w, multiples = powers(encrypt(w, 0, 0, 0, 0)) }
end

-- Returns the plain text, or nil if the tag does not fit. `nonce`: 12 bytes.
local function open(self, nonce, header, text, tag)
    local x, y, z = word_at(nonce, 1), word_at(nonce, 5), word_at(nonce, 9)
    local lengths = bytes_of(0) .. bytes_of(8 * #header) .. bytes_of(0) .. bytes_of(8 * #text)
    local a, b, c, d = ghash(self.multiples, padded(header) .. padded(text) .. lengths)
    local e, f, g, h = encrypt(self.w, x, y, z, 1)
    local expected = bytes_of(bxor(a, e)) .. bytes_of(bxor(b, f)) .. bytes_of(bxor(c, g))
        .. bytes_of(bxor(d, h))
    if expected ~= tag then
        return nil
    end
    local whole, out, counter = padded(text), {}, 2
    for at = 1, #whole, 16 do
        a, b, c, d = encrypt(self.w, x, y, z, counter)
        out[#out + 1] = bytes_of(bxor(a, word_at(whole, at)))
        out[#out + 1] = bytes_of(bxor(b, word_at(whole, at + 4)))
        out[#out + 1] = bytes_of(bxor(c, word_at(whole, at + 8)))
        out[#out + 1] = bytes_of(bxor(d, word_at(whole, at + 12)))
        counter = counter + 1
    end
    return table.concat(out):sub(1, #text)
end

return { expand = expand, cipher = cipher, open = open, sha256 = sha256 }

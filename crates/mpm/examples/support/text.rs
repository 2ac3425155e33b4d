//! Literals as in rules, and text as it meets them. The words differ from those of the crate's
//! model.

use mpm::Literal;

/// Numbers that depend only on the seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 24
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    pub fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

/// Lengths of literals.
#[derive(Clone, Copy)]
pub enum Lengths {
    Long,
    Medium,
    Short,
    /// Those of the longest contents of published rules: one in twenty has fewer than four bytes.
    AsInRules,
}

impl Lengths {
    fn draw(self, random: &mut Random) -> usize {
        let shortest = match self {
            Self::Long => 7,
            Self::Medium => 5,
            Self::Short => 4,
            Self::AsInRules if random.below(20) == 0 => return 2 + random.below(2),
            Self::AsInRules => 4,
        };
        let most = if random.below(3) == 0 { 33 - shortest } else { 12 };
        shortest + random.below(most)
    }
}

const PLACES: &[&str] = &[
    "/admin",
    "/setup",
    "/shell",
    "/gateway",
    "/manager",
    "/vendor",
    "/phpmyadmin",
    "/console",
    "/upload",
    "/debug",
    "/plugins",
    "/include",
    "/modules",
    "/config",
    "/backup",
    "/HNAP1",
    "/boaform",
    "/solr",
    "/struts",
    "/owa",
];
const ENDINGS: &[&str] = &[
    ".php", ".asp", ".jsp", ".cgi", ".action", ".exe", ".dll", ".sh", ".pl", ".bak", ".ini", ".do", ".cfm",
    ".dat",
];
const KEYS: &[&str] = &[
    "cmd=", "exec=", "&uid=", "?ver=", "payload=", "path=", "query=", "&pass=", "host=", "ip=", "&step=",
    "mac=", "&gate=",
];
const COMMANDS: &[&str] = &[
    "wget ",
    "curl -s ",
    "chmod 777 ",
    "/bin/sh -c ",
    "/etc/passwd",
    "nc -e ",
    "powershell -enc ",
    "cat ",
    "rm -rf ",
    "base64_decode(",
    "eval(",
    "system(",
    "union select ",
    "xp_cmdshell",
    "${jndi:",
    "../..",
    "certutil ",
    "<script>",
];
const HEADERS: &[&str] = &[
    "User-Agent: ",
    "X-Token: ",
    "Cookie: ",
    "Server: ",
    "Referer: ",
    "X-Id: ",
    "Content-Type: ",
    "Host: ",
    "Accept: ",
];

fn word(random: &mut Random) -> String {
    const SOUNDS: &[&str] = &[
        "ba", "co", "di", "fu", "ga", "lo", "mi", "ne", "po", "ra", "se", "ti", "vu", "x", "z", "er", "st",
        "in", "7", "42",
    ];
    (0..2 + random.below(3)).map(|_| random.pick(SOUNDS)).collect()
}

/// Returns `count` distinct literals without case.
pub fn literals(count: usize, lengths: Lengths, random: &mut Random) -> Vec<Literal> {
    let mut chosen: Vec<Literal> = Vec::new();
    let mut known = std::collections::HashSet::new();
    while chosen.len() < count {
        let (a, b) = (word(random), word(random));
        let mut text = match random.below(6) {
            0 => format!("{}/{a}{}", random.pick(PLACES), random.pick(ENDINGS)),
            1 => format!("{}{}?{}{a}", random.pick(PLACES), random.pick(ENDINGS), random.pick(KEYS)),
            2 => format!("{}{a}/{}.{}", random.pick(HEADERS), 1 + random.below(9), random.below(10)),
            3 => format!("{}{a}{}", random.pick(COMMANDS), random.pick(ENDINGS)),
            4 => format!("{a}{}{b}", random.pick(KEYS)),
            _ => format!("{a}-{b}{}{}", random.pick(PLACES), random.pick(KEYS)),
        };
        let length = lengths.draw(random);
        while text.len() < length {
            text += &word(random);
        }
        let skipped = random.below(text.len() - length + 1);
        let bytes = text.as_bytes()[skipped..skipped + length].to_ascii_lowercase();
        if known.insert(bytes.clone()) {
            chosen.push(Literal::nocase(bytes));
        }
    }
    chosen
}

/// Requests and responses, one in four with a literal of at least six bytes.
pub fn http(bytes: usize, literals: &[Literal], random: &mut Random) -> Vec<u8> {
    const AGENTS: &[&str] = &[
        "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
        "Dalvik/2.1.0 (Linux; U; Android 13; SM-A536B Build/TP1A.220624.014)",
        "python-requests/2.31.0",
    ];
    const TYPES: &[&str] =
        &["text/html", "application/json", "image/png", "text/css", "application/javascript", "font/woff2"];
    const FOLDERS: &[&str] =
        &["assets", "news", "articles", "products", "media", "forum", "v2", "download", "archive", "team"];
    const WORDS: &[&str] = &[
        "the", "of", "and", "to", "in", "is", "that", "for", "on", "with", "as", "was", "network", "people",
        "first", "would", "system", "after", "little", "world", "between", "because", "through", "market",
        "number", "quarter", "weather", "engine", "letters", "morning", "question", "against", "several",
        "nothing", "policy", "library", "station", "history",
    ];
    let mut text = String::new();
    while text.len() < bytes {
        let put = literals.get(random.below(4 * literals.len())).filter(|literal| literal.bytes.len() > 5);
        let put = put.map_or(String::new(), |literal| String::from_utf8_lossy(&literal.bytes).to_uppercase());
        let (a, b, folder, number) =
            (word(random), word(random), random.pick(FOLDERS), random.below(100_000));
        if random.below(2) == 0 {
            text += &format!(
                "GET /{folder}/{a}/{number}/{b}.html?ref={a}&page={} HTTP/1.1\r\nHost: www.{b}.test\r\nUser-Agent: {}\r\n\
                 Accept: {},*/*;q=0.5\r\nAccept-Language: fr-FR,fr;q=0.8,en;q=0.3\r\nAccept-Encoding: gzip, br, zstd\r\n\
                 DNT: 1\r\nX-Trace: {put}\r\nReferer: https://{a}.test/{folder}/\r\nCookie: sid={number}{number}; theme=dark\r\n\
                 Connection: keep-alive\r\nPriority: u=1, i\r\n\r\n",
                random.below(30),
                random.pick(AGENTS),
                random.pick(TYPES)
            );
            continue;
        }
        text += &format!(
            "HTTP/1.1 200 OK\r\nServer: openresty\r\nDate: Thu, 11 Jul 2024 16:{}:07 GMT\r\nContent-Type: {}\r\nAge: {number}\r\n\
             Cache-Control: public, max-age=600\r\nX-Cache: HIT\r\nVia: 1.1 {a}\r\nAlt-Svc: h3=\":443\"\r\n\r\n<html><body><article>",
            10 + random.below(50),
            random.pick(TYPES)
        );
        for _ in 0..1 + random.below(6) {
            let prose: Vec<_> = (0..10 + random.below(30)).map(|_| random.pick(WORDS)).collect();
            text += &format!(
                "<section data-id=\"{number}\"><h2>{a} {b}</h2>\n<p>{}.</p></section>\n",
                prose.join(" ")
            );
            text += &format!("<img class=\"thumb\" src=\"/{folder}/{b}-{number}.webp\" loading=\"lazy\">\n");
        }
        text += &format!("<!-- {put} --></article></body></html>\r\n");
    }
    text.truncate(bytes);
    text.into_bytes()
}

/// Literals one after the other, each with one byte changed.
pub fn near_misses(bytes: usize, literals: &[Literal], random: &mut Random) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < bytes {
        let mut near = literals[random.below(literals.len())].bytes.clone();
        let at = random.below(near.len());
        near[at] = b'~';
        text.extend(near);
    }
    text.truncate(bytes);
    text
}

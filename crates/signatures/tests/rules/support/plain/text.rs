//! Elements of a rule's text: options, numbers, texts and bytes.

use super::options;

/// Returns the options of a rule: the texts between unescaped semicolons.
pub fn options<'a>(text: &'a str) -> Vec<(&'a str, &'a str)> {
    let names = options::names(text).unwrap();
    let end = text.trim_end().len() - 1;
    let starts = names.iter().map(|(at, _)| *at).skip(1).chain([end]);
    let whole = names.iter().zip(starts).map(|((at, name), end)| (*name, &text[at + name.len()..end]));
    let value = |rest: &'a str| {
        let rest = rest.trim().strip_suffix(';').unwrap().trim();
        rest.strip_prefix(':').unwrap_or(rest).trim()
    };
    whole.map(|(name, rest)| (name, value(rest))).collect()
}

pub fn number(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let magnitude = hex.map_or_else(|| digits.parse().ok(), |hex| i128::from_str_radix(hex, 16).ok());
    magnitude.map(|magnitude: i128| sign * magnitude)
}

/// Returns a number as a number, and a variable as its name.
pub fn operand(text: &str) -> String {
    number(text.trim()).map_or_else(|| text.trim().to_owned(), |number| number.to_string())
}

/// Removes quotes and escapes.
pub fn plain(text: &str) -> String {
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let (mut plain, mut signs) = (String::new(), text.chars().peekable());
    while let Some(sign) = signs.next() {
        match signs.peek() {
            Some(next) if sign == '\\' && ";:\"\\".contains(*next) => plain.extend(signs.next()),
            Some(next) if sign == '\\' => {
                plain.extend([sign, *next]);
                signs.next();
            }
            _ => plain.push(sign),
        }
    }
    plain
}

/// Returns the bytes of a content.
pub fn bytes(text: &str) -> Vec<u8> {
    let text = &text[1..text.len() - 1];
    let mut bytes = Vec::new();
    for (number, part) in text.split('|').enumerate() {
        if number % 2 == 0 {
            bytes.extend(plain(part).bytes());
            continue;
        }
        let digits: Vec<_> = part.bytes().filter(|byte| *byte != b' ').collect();
        let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
    }
    bytes
}

pub fn plain_quotes(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text).trim()
}

pub fn unescaped(text: &str) -> String {
    // Quotes are part of it here.
    plain(&format!("\"{text}\""))
}

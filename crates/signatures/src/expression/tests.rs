use super::*;

fn regex(pattern: &str, letters: &str) -> Result<String, ExpressionFeature> {
    let mut flags = PcreFlags::default();
    letters.chars().for_each(|letter| *flags.get_mut(letter).unwrap() = true);
    let pattern = pattern.to_owned();
    Pcre { pattern, negated: false, relative: false, flags, captures: Vec::new() }.regex()
}

#[test]
fn expressions_translate_to_automata_syntax() {
    for (pattern, letters, expected) in [
        ("a/b", "", r"(?-u)(?:a\x2Fb)"),
        ("^a$", "", r"(?-u)(?:\Aa(?:\n\z|\z))"),
        ("^a$", "E", r"(?-u)(?:\Aa\z)"),
        ("^a$", "m", r"(?-u)(?:(?m:^)a(?m:$))"),
        ("a.*?b{2,}c{,3}{", "isGA", r"(?isU-u)\A(?:a.*?b{2,}c\x7B\x2C3\x7D\x7B)"),
        (r"[]a-z\d\-[\x41]&&[^]x]", "", r"(?-u)(?:[\x5Da-z\d\x2D\x5BA]\x26\x26[^\x5Dx])"),
        (r"[[:alpha:]\w-z]\Qa.b\E\x{ff}\;\012\cA", "", r"(?-u)(?:[[:alpha:]\w\x2Dz]a\x2Eb\xFF\x3B\x0A\x01)"),
        ("(?<n>a)(?P<m>b)(?i)c(?m-s:^d)^(?#e)", "", r"(?-u)(?:(a)(b)(?i)c(?-s:(?m:^)d)\A)"),
        ("a b # c\n[ d]", "x", r"(?-u)(?:ab[\x20d])"),
        ("é\u{200b}", "", r"(?-u)(?:\xC3\xA9\xE2\x80\x8B)"),
        (r"\h[\V]\Z", "", r"(?-u)(?:[\t \xA0][\x00-\x09\x0E-\x84\x86-\xFF](?:\n\z|\z))"),
    ] {
        assert_eq!(regex(pattern, letters).as_deref(), Ok(expected), "{pattern}");
    }
}

#[test]
fn features_beyond_automata_are_named() {
    use ExpressionFeature::*;
    for (pattern, feature) in [
        ("a(?!b)", LookAround),
        ("(?<=a)b", LookAround),
        (r"(a)\1", BackReference),
        (r"(?P<a>a)(?P=a)", BackReference),
        ("a++", Atomic),
        ("(?>a)b", Atomic),
        (r"a\R", Atomic),
        ("(?m)a|^$", LookAround),
        ("(?R)", Recursion),
        ("(a)?(?(1)b|c)", Conditional),
        (r"a\Kb", Restart),
        ("(*ACCEPT)", Verb),
        (r"\p{L}", Unicode),
        (r"\x{100}", Unicode),
        ("(?|a|b)", Other),
        ("*a", Other),
        ("(a", Malformed),
        ("a)", Malformed),
        ("[a", Malformed),
        ("[z-a]", Malformed),
        ("a\\", Malformed),
    ] {
        assert_eq!(regex(pattern, ""), Err(feature), "{pattern}");
    }
}

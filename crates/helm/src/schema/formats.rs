//! The formats that Helm's validator knows (`format.go` of github.com/santhosh-tekuri/jsonschema v6). Schemas up to
//! draft 7 enforce them; in newer ones they are only descriptive.

use std::net::Ipv6Addr;

use gostd::url::Url;

use crate::semver;

/// Why a text does not match a format, in that validator's words.
pub(super) type Checked = Result<(), String>;

/// A format by name.
pub(super) type Format = (&'static str, fn(&str) -> Checked);

/// All formats. Those that the validator does not know, and so accepts for every text, come last.
pub(super) const ALL: [Format; 20] = [
    ("json-pointer", json_pointer),
    ("relative-json-pointer", relative_json_pointer),
    ("uuid", uuid),
    ("duration", duration),
    ("period", period),
    ("ipv4", ipv4),
    ("ipv6", ipv6),
    ("hostname", hostname),
    ("email", email),
    ("date", date),
    ("time", time),
    ("date-time", date_time),
    ("uri", uri),
    ("iri", uri),
    ("uri-reference", uri_reference),
    ("iri-reference", uri_reference),
    ("uri-template", uri_template),
    ("semver", strict_semver),
    ("idn-email", anything),
    ("idn-hostname", anything),
];

#[expect(
    clippy::unnecessary_wraps,
    reason = "it is in a table of checks that can fail"
)]
fn anything(_: &str) -> Checked {
    Ok(())
}

fn fail<T>(why: impl Into<String>) -> Result<T, String> {
    Err(why.into())
}

fn json_pointer(text: &str) -> Checked {
    if text.is_empty() {
        return Ok(());
    }
    let Some(tokens) = text.strip_prefix('/') else {
        return fail("not starting with /");
    };
    for token in tokens.split('/') {
        let mut characters = token.chars();
        while let Some(c) = characters.next() {
            if c == '~' && !matches!(characters.next(), Some('0' | '1')) {
                return fail("~ must be followed by 0 or 1");
            }
        }
    }
    Ok(())
}

fn relative_json_pointer(text: &str) -> Checked {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    match text.len() - rest.len() {
        0 => return fail("must start with non-negative integer"),
        2.. if text.starts_with('0') => return fail("starts with zero"),
        _ => {}
    }
    if rest == "#" { Ok(()) } else { json_pointer(rest) }
}

fn uuid(text: &str) -> Checked {
    let lengths = [8, 4, 4, 4, 12];
    let groups: Vec<&str> = text.split('-').collect();
    if groups.len() != lengths.len() {
        return fail("must have 5 elements");
    }
    for (i, (group, length)) in groups.iter().zip(lengths).enumerate() {
        if group.len() != length {
            return fail(format!("element {} must be {length} characters long", i + 1));
        }
        if let Some(c) = group.chars().find(|c| !c.is_ascii_hexdigit()) {
            return fail(format!("non-hex character {c:?}"));
        }
    }
    Ok(())
}

fn duration(text: &str) -> Checked {
    let Some(text) = text.strip_prefix('P') else {
        return fail("must start with P");
    };
    if text.is_empty() {
        return fail("nothing after P");
    }
    if let Some(weeks) = text.strip_suffix('W') {
        return match weeks {
            "" => fail("no number in week"),
            weeks if weeks.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
            _ => fail("invalid week"),
        };
    }
    let all_units = ["YMD", "HMS"];
    for (i, part) in text.split('T').enumerate() {
        if i != 0 && part.is_empty() {
            return fail("no time elements");
        }
        let Some(units) = all_units.get(i) else {
            return fail("more than one T");
        };
        duration_elements(part, units)?;
    }
    Ok(())
}

fn duration_elements(mut text: &str, all_units: &str) -> Checked {
    let mut units = all_units;
    while !text.is_empty() {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == text.len() {
            return fail("missing number");
        }
        let Some(unit) = rest.chars().next() else {
            return fail("missing unit");
        };
        let Some(at) = units.find(unit) else {
            let why = if all_units.contains(unit) {
                "out of order"
            } else {
                ""
            };
            return fail(if why.is_empty() {
                format!("invalid unit {unit:?}")
            } else {
                format!("unit {unit:?} {why}")
            });
        };
        units = &units[at + 1..];
        text = &rest[unit.len_utf8()..];
    }
    Ok(())
}

fn period(text: &str) -> Checked {
    let Some((start, end)) = text.split_once('/') else {
        return fail("missing slash");
    };
    if start.starts_with('P') {
        duration(start).map_err(|why| format!("invalid start duration: {why}"))?;
        return date_time(end).map_err(|why| format!("invalid end date-time: {why}"));
    }
    date_time(start).map_err(|why| format!("invalid start date-time: {why}"))?;
    if end.starts_with('P') {
        duration(end).map_err(|why| format!("invalid end duration: {why}"))
    } else {
        date_time(end).map_err(|why| format!("invalid end date-time: {why}"))
    }
}

fn ipv4(text: &str) -> Checked {
    let groups: Vec<&str> = text.split('.').collect();
    if groups.len() != 4 {
        return fail("expected four decimals");
    }
    for group in groups {
        if group.len() > 1 && group.starts_with('0') {
            return fail("leading zeros");
        }
        let Ok(number) = group.parse::<i64>() else {
            return fail(format!("strconv.Atoi: parsing {group:?}: invalid syntax"));
        };
        if !(0..=255).contains(&number) {
            return fail("decimal must be between 0 and 255");
        }
    }
    Ok(())
}

fn ipv6(text: &str) -> Checked {
    if !text.contains(':') {
        return fail("missing colon");
    }
    if text.contains('%') {
        return fail("zone id is not a part of ipv6 address");
    }
    match text.parse::<Ipv6Addr>() {
        Ok(_) => Ok(()),
        Err(_) => fail(format!("ParseAddr({text:?}): unable to parse IP")),
    }
}

fn hostname(text: &str) -> Checked {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.len() > 253 {
        return fail("more than 253 characters long");
    }
    for label in text.split('.') {
        if label.is_empty() || label.len() > 63 {
            return fail("label must be 1 to 63 characters long");
        }
        if label.starts_with('-') {
            return fail("label starts with hyphen");
        }
        if label.ends_with('-') {
            return fail("label ends with hyphen");
        }
        if let Some(c) = label.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
            return fail(format!("invalid character {c:?}"));
        }
    }
    Ok(())
}

fn email(text: &str) -> Checked {
    if text.len() > 254 {
        return fail("more than 255 characters long");
    }
    let Some((local, domain)) = text.rsplit_once('@') else {
        return fail("missing @");
    };
    if local.len() > 64 {
        return fail("local part more than 64 characters long");
    }
    local_part(local)?;
    let Some(address) = domain
        .strip_prefix('[')
        .and_then(|domain| domain.strip_suffix(']'))
    else {
        return hostname(domain).map_err(|why| format!("invalid domain: {why}"));
    };
    match address.strip_prefix("IPv6:") {
        Some(address) => ipv6(address).map_err(|why| format!("invalid ipv6 address: {why}")),
        None => ipv4(address).map_err(|why| format!("invalid ipv4 address: {why}")),
    }
}

fn local_part(local: &str) -> Checked {
    if let Some(quoted) = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        if quoted.contains(['\\', '"']) {
            return fail("backslash and quote are not allowed within quoted local part");
        }
        return Ok(());
    }
    if local.starts_with('.') {
        return fail("starts with dot");
    }
    if local.ends_with('.') {
        return fail("ends with dot");
    }
    if local.contains("..") {
        return fail("consecutive dots");
    }
    match local
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !".!#$%&'*+-/=?^_`{|}~".contains(*c))
    {
        Some(c) => fail(format!("invalid character {c:?}")),
        None => Ok(()),
    }
}

fn date(text: &str) -> Checked {
    let is_shaped = text.len() == 10
        && text.bytes().enumerate().all(|(i, byte)| {
            if i == 4 || i == 7 {
                byte == b'-'
            } else {
                byte.is_ascii_digit()
            }
        });
    let is_date = is_shaped && {
        let number = |range: std::ops::Range<usize>| text[range].parse().unwrap_or_default();
        jiff::civil::Date::new(number(0..4), number(5..7) as i8, number(8..10) as i8).is_ok()
    };
    if is_date {
        Ok(())
    } else {
        fail(format!("parsing time {text:?} as \"2006-01-02\": cannot parse"))
    }
}

fn time(text: &str) -> Checked {
    let bytes = text.as_bytes();
    if bytes.len() < 9 || !text.is_ascii() {
        return fail("less than 9 characters long");
    }
    if bytes[2] != b':' || bytes[5] != b':' {
        return fail("missing colon in correct place");
    }
    let number = |range: std::ops::Range<usize>| match text[range].parse::<i32>() {
        Ok(number) if number >= 0 => Ok(number),
        _ => fail("invalid hour/min/sec"),
    };
    let (hour, minute, second) = (number(0..2)?, number(3..5)?, number(6..8)?);
    if hour > 23 || minute > 59 || second > 60 {
        return fail("hour/min/sec out of range");
    }
    let mut rest = &text[8..];
    if let Some(fraction) = rest.strip_prefix('.') {
        rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == fraction.len() {
            return fail("no digits in second fraction");
        }
    }
    let mut minutes = hour * 60 + minute;
    if !rest.eq_ignore_ascii_case("z") {
        minutes -= offset(rest)?;
        if minutes < 0 {
            minutes += 24 * 60;
        }
    }
    if second >= 60 && minutes != 23 * 60 + 59 {
        return fail("invalid leap second");
    }
    Ok(())
}

/// `+hh:mm` in minutes.
fn offset(text: &str) -> Result<i32, String> {
    if text.len() != 6 {
        return fail("offset must be 6 characters long");
    }
    let sign = match text.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return fail("offset must begin with plus/minus"),
    };
    if text.as_bytes()[3] != b':' {
        return fail("missing colon in offset in correct place");
    }
    let number = |range: std::ops::Range<usize>| match text[range].parse::<i32>() {
        Ok(number) if number >= 0 => Ok(number),
        _ => fail("invalid hour/min in offset"),
    };
    let (hours, minutes) = (number(1..3)?, number(4..6)?);
    if hours > 23 || minutes > 59 {
        return fail("hour/min in offset out of range");
    }
    Ok(sign * (hours * 60 + minutes))
}

fn date_time(text: &str) -> Checked {
    if text.len() < 20 || !text.is_ascii() {
        return fail("less than 20 characters long");
    }
    if !matches!(text.as_bytes()[10], b't' | b'T') {
        return fail("11th character must be t or T");
    }
    date(&text[..10]).map_err(|why| format!("invalid date element: {why}"))?;
    time(&text[11..]).map_err(|why| format!("invalid time element: {why}"))
}

/// Go's URL parser, plus a check of IPv6 addresses, which that parser does not do.
fn parsed_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let host = String::from_utf8_lossy(url.hostname()).into_owned();
    if host.contains(':') {
        if !url.host.contains(&b'[') || !url.host.contains(&b']') {
            return fail("ipv6 address not enclosed in brackets");
        }
        ipv6(&host).map_err(|why| format!("invalid ipv6 address: {why}"))?;
    }
    Ok(url)
}

fn uri(text: &str) -> Checked {
    if parsed_url(text)?.scheme.is_empty() {
        fail("relative url")
    } else {
        Ok(())
    }
}

fn uri_reference(text: &str) -> Checked {
    if text.contains('\\') {
        return fail("contains \\");
    }
    parsed_url(text).map(drop)
}

fn uri_template(text: &str) -> Checked {
    let url = parsed_url(text)?;
    for part in url.path.split(|byte| *byte == b'/') {
        let mut is_open = false;
        for byte in part.iter().filter(|byte| matches!(byte, b'{' | b'}')) {
            if (*byte == b'{') == is_open {
                return fail("nested curly braces");
            }
            is_open = !is_open;
        }
        if is_open {
            return fail("no matching closing brace");
        }
    }
    Ok(())
}

fn strict_semver(text: &str) -> Checked {
    semver::Version::parse_strict(text)
        .map(drop)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str) -> Checked {
        ALL.iter().find(|(known, _)| *known == name).unwrap().1(text)
    }

    #[test]
    fn formats_accept_what_helms_validator_accepts() {
        for (name, text) in [
            ("json-pointer", "/a~0b/~1"),
            ("relative-json-pointer", "0#"),
            ("relative-json-pointer", "12/a"),
            ("uuid", "01234567-89ab-CDEF-0123-456789abcdef"),
            ("duration", "P1Y2M3DT4H5M6S"),
            ("duration", "P3W"),
            ("period", "2024-01-01T00:00:00Z/P1D"),
            ("ipv4", "1.2.3.255"),
            ("ipv6", "::1"),
            ("ipv6", "::ffff:1.2.3.4"),
            ("hostname", "a-b.example."),
            ("email", "\"a b\"@[IPv6:::1]"),
            ("email", "a+b@example.org"),
            ("date", "2024-02-29"),
            ("time", "23:59:60Z"),
            ("time", "01:29:60+01:30"),
            ("date-time", "2024-01-01t00:00:00.5-08:00"),
            ("uri", "https://<any>/path"),
            ("uri", "mailto:a@b"),
            ("uri-reference", "a/b?c"),
            ("uri-template", "http://a/{b}/{c}"),
            ("semver", "1.2.3-a.1+b"),
            ("idn-email", "anything"),
        ] {
            assert_eq!(check(name, text), Ok(()), "{name} {text}");
        }
    }

    #[test]
    fn formats_refuse_with_its_words() {
        for (name, text, why) in [
            ("json-pointer", "a", "not starting with /"),
            ("json-pointer", "/~2", "~ must be followed by 0 or 1"),
            ("relative-json-pointer", "01", "starts with zero"),
            ("uuid", "0123", "must have 5 elements"),
            ("duration", "P1D2Y", "unit 'Y' out of order"),
            ("duration", "PT", "no time elements"),
            ("ipv4", "1.2.3", "expected four decimals"),
            ("ipv4", "01.2.3.4", "leading zeros"),
            ("ipv4", "1.2.3.x", "strconv.Atoi: parsing \"x\": invalid syntax"),
            ("ipv4", "1.2.3.256", "decimal must be between 0 and 255"),
            ("ipv6", "1", "missing colon"),
            ("ipv6", "::1%eth0", "zone id is not a part of ipv6 address"),
            ("hostname", "-a", "label starts with hyphen"),
            ("hostname", "a_b", "invalid character '_'"),
            ("email", "a", "missing @"),
            ("email", ".a@b", "starts with dot"),
            ("time", "24:00:00Z", "hour/min/sec out of range"),
            ("time", "12:00:60Z", "invalid leap second"),
            ("date-time", "2024-01-01", "less than 20 characters long"),
            ("uri", "/a", "relative url"),
            ("uri-reference", "a\\b", "contains \\"),
            ("uri-template", "http://a/{b", "no matching closing brace"),
        ] {
            assert_eq!(check(name, text), Err(why.to_owned()), "{name} {text}");
        }
        for (name, text) in [
            ("date", "2023-02-29"),
            ("date", "2024-1-1"),
            ("ipv6", ":::"),
            ("semver", "1.2"),
            ("semver", "v1.2.3"),
        ] {
            assert!(check(name, text).is_err(), "{name} {text}");
        }
    }
}

//! Converts numbers to and from text: `strconv`'s floats and integers.

/// Appends a float like `strconv.AppendFloat` for the formats `e E f g G b x X`. A precision of `None` means the
/// shortest digits that parse back to the same number, of an `f32` if `single`.
pub fn append_float(out: &mut Vec<u8>, f: f64, format: u8, precision: Option<usize>, single: bool) {
    if !f.is_finite() {
        let text = if f.is_nan() {
            "NaN"
        } else if f > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        };
        out.extend_from_slice(text.as_bytes());
        return;
    }
    if f.is_sign_negative() {
        out.push(b'-');
    }
    let magnitude = f.abs();
    match format {
        b'b' => append_binary(out, magnitude, single),
        b'x' | b'X' => append_hex(out, magnitude, format, precision, single),
        b'f' => match precision {
            Some(precision) => append_fixed(out, magnitude, precision),
            // Integers up to here are exact and need all their digits.
            None if !single && magnitude < 9_007_199_254_740_992.0 && magnitude.fract() == 0.0 => {
                append_int(out, magnitude as u64);
            }
            None => Decimal::shortest(magnitude, single).append_fixed(out),
        },
        b'e' | b'E' => {
            let decimal = match precision {
                Some(precision) => Decimal::rounded(magnitude, precision + 1),
                None => Decimal::shortest(magnitude, single),
            };
            decimal.append_scientific(out, format, precision);
        }
        _ => append_general(out, magnitude, format, precision, single),
    }
}

/// Appends a finite float like `encoding/json`: without an exponent between 1e-6 and 1e21, and without a leading zero
/// in an exponent of one digit.
pub fn append_json_float(out: &mut Vec<u8>, f: f64, single: bool) {
    let magnitude = if single { f64::from(f as f32) } else { f }.abs();
    let (least, bound) = if single {
        (f64::from(1e-6_f32), f64::from(1e21_f32))
    } else {
        (1e-6, 1e21)
    };
    if magnitude == 0.0 || (least..bound).contains(&magnitude) {
        append_float(out, f, b'f', None, single);
        return;
    }
    append_float(out, f, b'e', None, single);
    if let [.., b'-', zero @ b'0', last] = &mut out[..] {
        *zero = *last;
        out.pop();
    }
}

/// `%g`: uses an exponent if it is below -4 or at least the precision. For the shortest digits the precision is taken
/// as 6, whatever their number.
fn append_general(out: &mut Vec<u8>, f: f64, format: u8, precision: Option<usize>, single: bool) {
    if precision.is_none() && f < 1e6 && f.fract() == 0.0 {
        // Most numbers in values are integers like this; they need no exponent.
        return append_int(out, f as u64);
    }
    let (decimal, limit) = match precision {
        None => (Decimal::shortest(f, single), 6),
        Some(precision) => {
            let precision = precision.max(1);
            let decimal = Decimal::rounded(f, precision);
            let digits = decimal.digits.len() as i64;
            // An integer with fewer digits than requested is printed without exponent.
            let limit = if precision as i64 > digits && digits >= decimal.point {
                digits
            } else {
                precision as i64
            };
            (decimal, limit)
        }
    };
    let exponent = decimal.point - 1;
    if exponent < -4 || exponent >= limit {
        decimal.append_scientific(out, format + b'e' - b'g', None);
    } else {
        decimal.append_fixed(out);
    }
}

/// Digits without trailing zeros, and the position of the decimal point: `0.digits * 10^point`.
struct Decimal {
    digits: Vec<u8>,
    point: i64,
}

impl Decimal {
    fn shortest(f: f64, single: bool) -> Self {
        if single {
            let f = f as f32;
            Self::parse(&format!("{f:e}")).with_even_end(f64::from(f), 7, |text| text.parse() == Ok(f))
        } else {
            Self::parse(&format!("{f:e}")).with_even_end(f, 16, |text| text.parse() == Ok(f))
        }
    }

    /// If two shortest texts are equally near, Go takes the one that ends in an even digit, Rust the larger one.
    fn with_even_end(mut self, f: f64, least_digits: usize, reads_back: impl Fn(&str) -> bool) -> Self {
        // Only numbers that need nearly all digits have such neighbours.
        if self.digits.len() < least_digits || self.digits.last().is_none_or(|digit| digit % 2 == 0) {
            return self;
        }
        // Enough digits to represent a number exactly halfway between two of these.
        let exact = Self::parse(&format!("{f:.80e}"));
        let lies_between = exact.digits.len() == self.digits.len() + 1 && exact.digits.ends_with(b"5");
        if lies_between && exact.digits[..self.digits.len()] < *self.digits {
            let mut smaller = self.digits.clone();
            if let Some(last) = smaller.last_mut() {
                // An odd digit is not zero, so there is nothing to borrow.
                *last -= 1;
            }
            // The floats below a power of two are closer together than those above.
            let scale = self.point - smaller.len() as i64;
            if reads_back(&format!("{}e{scale}", String::from_utf8_lossy(&smaller))) {
                self.digits = smaller;
            }
        }
        self
    }

    fn rounded(f: f64, digits: usize) -> Self {
        // No float has more significant digits; the rest would be zeros.
        Self::parse(&format!("{f:.*e}", digits.clamp(1, 1100) - 1))
    }

    /// Parses Rust's `d.ddde-7`.
    fn parse(scientific: &str) -> Self {
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
        let mut digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        let point = if digits.is_empty() {
            0
        } else {
            exponent.parse().unwrap_or(0) + 1
        };
        Self { digits, point }
    }

    fn append_scientific(&self, out: &mut Vec<u8>, format: u8, precision: Option<usize>) {
        let (first, rest) = self.digits.split_first().unwrap_or((&b'0', &[]));
        let fraction = precision.unwrap_or(rest.len());
        out.push(*first);
        if fraction > 0 {
            out.push(b'.');
            out.extend_from_slice(&rest[..rest.len().min(fraction)]);
            out.resize(out.len() + fraction.saturating_sub(rest.len()), b'0');
        }
        let exponent = if self.digits.is_empty() { 0 } else { self.point - 1 };
        out.push(format);
        append_exponent(out, exponent);
    }

    fn append_fixed(&self, out: &mut Vec<u8>) {
        let point = usize::try_from(self.point).unwrap_or(0);
        if point == 0 {
            out.push(b'0');
        } else {
            let whole = &self.digits[..self.digits.len().min(point)];
            out.extend_from_slice(whole);
            out.resize(out.len() + point - whole.len(), b'0');
        }
        if self.digits.len() as i64 > self.point {
            out.push(b'.');
            out.resize(out.len() + usize::try_from(-self.point).unwrap_or(0), b'0');
            out.extend_from_slice(&self.digits[self.digits.len().min(point)..]);
        }
    }
}

/// A sign and at least two digits.
fn append_exponent(out: &mut Vec<u8>, exponent: i64) {
    out.push(if exponent < 0 { b'-' } else { b'+' });
    if exponent.abs() < 10 {
        out.push(b'0');
    }
    append_int(out, exponent.unsigned_abs());
}

fn append_fixed(out: &mut Vec<u8>, f: f64, precision: usize) {
    // Rust does not format with a precision above 65535; no float has more than 1074 digits after the point.
    out.extend_from_slice(format!("{f:.*}", precision.min(1100)).as_bytes());
    out.resize(out.len() + precision.saturating_sub(1100), b'0');
}

/// Mantissa, binary exponent and width of the mantissa in bits.
fn parts(f: f64, single: bool) -> (u64, i64, i64) {
    if single {
        let bits = (f as f32).to_bits();
        let (mantissa, exponent) = (u64::from(bits & 0x7f_ffff), i64::from(bits >> 23 & 0xff));
        if exponent == 0 {
            (mantissa, -126, 23)
        } else {
            (mantissa | 1 << 23, exponent - 127, 23)
        }
    } else {
        let bits = f.to_bits();
        let (mantissa, exponent) = (bits & 0xf_ffff_ffff_ffff, (bits >> 52 & 0x7ff) as i64);
        if exponent == 0 {
            (mantissa, -1022, 52)
        } else {
            (mantissa | 1 << 52, exponent - 1023, 52)
        }
    }
}

fn append_binary(out: &mut Vec<u8>, f: f64, single: bool) {
    let (mantissa, exponent, width) = parts(f, single);
    append_int(out, mantissa);
    let exponent = exponent - width;
    out.push(b'p');
    out.push(if exponent < 0 { b'-' } else { b'+' });
    append_int(out, exponent.unsigned_abs());
}

fn append_hex(out: &mut Vec<u8>, f: f64, format: u8, precision: Option<usize>, single: bool) {
    const ONE: u64 = 1 << 60;
    let (mut mantissa, mut exponent, width) = parts(f, single);
    mantissa <<= 60 - width;
    if mantissa == 0 {
        exponent = 0;
    } else {
        let shift = i64::from(mantissa.leading_zeros()) - 3;
        mantissa <<= shift;
        exponent -= shift;
    }
    if let Some(precision @ 0..15) = precision {
        let shift = precision * 4;
        let extra = (mantissa << shift) & (ONE - 1);
        mantissa >>= 60 - shift;
        // Rounds to nearest, ties to even.
        if extra | (mantissa & 1) > 1 << 59 {
            mantissa += 1;
        }
        mantissa <<= 60 - shift;
        if mantissa & (ONE << 1) != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    out.extend_from_slice(&[b'0', format, b'0' + (mantissa >> 60 & 1) as u8]);
    let digits: &[u8; 16] = if format == b'X' {
        b"0123456789ABCDEF"
    } else {
        b"0123456789abcdef"
    };
    mantissa <<= 4;
    let mut written = 0;
    while precision.map_or(mantissa != 0, |precision| written < precision) {
        if written == 0 {
            out.push(b'.');
        }
        out.push(digits[(mantissa >> 60 & 15) as usize]);
        mantissa <<= 4;
        written += 1;
    }
    out.push(if format == b'X' { b'P' } else { b'p' });
    append_exponent(out, exponent);
}

/// Appends decimal digits.
pub fn append_int(out: &mut Vec<u8>, mut n: u64) {
    let mut buffer = [0; 20];
    let mut start = buffer.len();
    loop {
        start -= 1;
        buffer[start] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&buffer[start..]);
}

/// Parses Go's syntax of integer literals (`strconv.ParseUint` with base 0): base prefixes, a leading zero for octal,
/// underscores. None if the text is not such a literal or does not fit.
pub fn parse_uint(text: &str) -> Option<u64> {
    let (base, digits) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &text[2..]),
        [b'0', b'b' | b'B', ..] => (2, &text[2..]),
        [b'0', b'o' | b'O', ..] => (8, &text[2..]),
        [b'0', _, ..] => (8, &text[1..]),
        _ => (10, text),
    };
    if text.contains('_') && !underscores_are_placed_well(text) {
        return None;
    }
    let mut number: u64 = 0;
    let mut any = false;
    for digit in digits.chars().filter(|c| *c != '_') {
        let digit = digit.to_digit(base)?;
        number = number.checked_mul(base.into())?.checked_add(digit.into())?;
        any = true;
    }
    any.then_some(number)
}

/// [`parse_uint`] with an optional sign (`strconv.ParseInt` with base 0).
pub fn parse_int(text: &str) -> Option<i64> {
    if let Some(digits) = text.strip_prefix('-') {
        0i64.checked_sub_unsigned(parse_uint(digits)?)
    } else {
        i64::try_from(parse_uint(text.strip_prefix('+').unwrap_or(text))?).ok()
    }
}

/// Parses Go's syntax of float literals (`strconv.ParseFloat`), including hexadecimal ones and underscores. None if
/// the text is not such a literal, or out of range.
pub fn parse_float(text: &str) -> Option<f64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    if matches!(digits.to_ascii_lowercase().as_str(), "inf" | "infinity") {
        return Some(sign * f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    if !digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit() || b"xXpP_.+-".contains(&byte))
    {
        return None;
    }
    let plain = if digits.contains('_') {
        if !underscores_are_placed_well(digits) {
            return None;
        }
        digits.replace('_', "")
    } else {
        digits.to_owned()
    };
    let number = match plain.get(..2) {
        Some("0x" | "0X") => parse_hex_float(&plain[2..])?,
        _ if plain.contains(|c: char| "aAbBcCdDfFxXpP".contains(c)) => return None,
        _ => plain.parse::<f64>().ok()?,
    };
    number.is_finite().then_some(sign * number)
}

fn parse_hex_float(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    if exponent.is_empty()
        || !exponent
            .trim_start_matches(['+', '-'])
            .bytes()
            .all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let mut exponent: i64 = exponent.parse().ok()?;
    let (mut mantissa, mut sticky, mut point, mut any): (u64, bool, bool, bool) = (0, false, false, false);
    for c in digits.chars() {
        if c == '.' {
            if point {
                return None;
            }
            point = true;
            continue;
        }
        let digit = u64::from(c.to_digit(16)?);
        any = true;
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= if point { 4 } else { 0 };
        } else {
            sticky |= digit != 0;
            exponent += if point { 0 } else { 4 };
        }
    }
    if !any {
        return None;
    }
    // The sticky bit makes the rounding correct: 64 bits are more than a float has.
    let mantissa = (mantissa | u64::from(sticky)) as f64;
    let exponent = exponent.clamp(-4000, 4000) as i32;
    // Two steps, so that a subnormal result does not overflow or underflow in between.
    Some(mantissa * 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2))
}

/// Underscores are only allowed between digits, or between a base prefix and a digit.
fn underscores_are_placed_well(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    // The previous character: '0' for a digit or prefix, '_' for an underscore, '!' for anything else, '^' at the
    // start.
    let mut before = b'^';
    let (rest, hex) = match text.as_bytes() {
        [b'0', prefix, rest @ ..] if b"bBoOxX".contains(prefix) => {
            before = b'0';
            (rest, prefix.eq_ignore_ascii_case(&b'x'))
        }
        all => (all, false),
    };
    for byte in rest {
        before = match byte {
            b'0'..=b'9' => b'0',
            _ if hex && byte.is_ascii_hexdigit() => b'0',
            b'_' if before == b'0' => b'_',
            b'_' => return false,
            _ if before == b'_' => return false,
            _ => b'!',
        };
    }
    before != b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(f: f64, format: u8, precision: Option<usize>) -> String {
        let mut out = Vec::new();
        append_float(&mut out, f, format, precision, false);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn halves_of_single_floats_end_evenly_too() {
        for (f, expected) in [
            (0.016_601_562_5, "0.016601562"),
            (433_956.125, "433956.12"),
            (-2_739_997.25, "-2.7399972e+06"),
            (1.5, "1.5"),
        ] {
            let mut out = Vec::new();
            append_float(&mut out, f, b'g', None, true);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    #[expect(clippy::excessive_precision, reason = "halfway between two shortest texts")]
    fn json_takes_the_even_end_between_two_shortest_texts() {
        for (f, expected) in [
            (2.980_232_238_769_531_25e-8, "2.9802322387695312e-8"),
            (5.960_464_477_539_062_5e-8, "5.960464477539063e-8"),
            (5.960_464_477_539_062_5e-7, "5.960464477539062e-7"),
            (0.000_001_072_883_605_957_031_25, "0.0000010728836059570312"),
            (140_737_488_355_328.125, "140737488355328.12"),
            (2_251_799_813_685_247.75, "2251799813685247.8"),
            (1e-6, "0.000001"),
            (1e-10, "1e-10"),
            (1e21, "1e+21"),
            (-0.0, "-0"),
        ] {
            let mut out = Vec::new();
            append_json_float(&mut out, f, false);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    #[expect(clippy::excessive_precision, reason = "halfway between two shortest texts")]
    fn the_shortest_form_turns_scientific_at_go_s_limits() {
        for (f, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e21, "1e+21"),
            (1e-7, "1e-07"),
            (1e100, "1e+100"),
            (100.0, "100"),
            (2_045_826_513_911_620.25, "2.0458265139116202e+15"),
            (2_045_826_513_911_620.75, "2.0458265139116208e+15"),
            (100_000_000_000_000.125, "1.0000000000000012e+14"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(format(f, b'g', None), expected);
        }
    }

    #[test]
    fn precisions_round_as_go_does() {
        assert_eq!(format(2.5, b'f', Some(0)), "2");
        assert_eq!(format(1.005, b'f', Some(2)), "1.00");
        assert_eq!(format(12345.678, b'e', Some(3)), "1.235e+04");
        assert_eq!(format(0.0, b'e', Some(2)), "0.00e+00");
        assert_eq!(format(100.0, b'g', Some(3)), "100");
        assert_eq!(format(100.0, b'g', Some(2)), "1e+02");
        assert_eq!(format(1e6, b'g', Some(10)), "1000000");
        assert_eq!(format(123_456.0, b'g', Some(10)), "123456");
        assert_eq!(format(1.0, b'x', None), "0x1p+00");
        assert_eq!(format(3.7, b'x', Some(3)), "0x1.d9ap+01");
        assert_eq!(format(1.0, b'b', None), "4503599627370496p-52");
    }

    #[test]
    fn literals_are_read_as_go_reads_them() {
        assert_eq!(parse_int("017"), Some(15));
        assert_eq!(parse_int("0o17"), Some(15));
        assert_eq!(parse_int("-0x1_F"), Some(-31));
        assert_eq!(parse_int("1_000"), Some(1000));
        assert_eq!(parse_int("1__0"), None);
        assert_eq!(parse_int("089"), None);
        assert_eq!(parse_int("9223372036854775808"), None);
        assert_eq!(parse_int("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_uint("18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_float("1e3"), Some(1000.0));
        assert_eq!(parse_float("0x1p-2"), Some(0.25));
        assert_eq!(parse_float("0x1.8p1"), Some(3.0));
        assert_eq!(parse_float("1_0.5"), Some(10.5));
        assert_eq!(parse_float(".5"), Some(0.5));
        assert_eq!(parse_float("5."), Some(5.0));
        assert_eq!(parse_float("1e400"), None);
        assert_eq!(parse_float("1e"), None);
    }
}

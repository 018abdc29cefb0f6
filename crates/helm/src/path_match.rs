//! Go's `filepath.Match`, the patterns of `.helmignore` and `--show-only`.

/// The pattern is malformed: an unfinished class, an empty range or a trailing backslash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in pattern")]
pub struct BadPattern;

/// Whether the whole name matches the pattern.
///
/// `*` and `?` do not match `/`; `[…]` lists characters and ranges, `[^…]` their complement; `\` escapes the next
/// character. As in Go, an error in the rest of a pattern is reported even if the name fails to match earlier.
///
/// # Errors
/// When the pattern is malformed.
pub fn matches(pattern: &str, name: &str) -> Result<bool, BadPattern> {
    let has_meaning = |c: char| matches!(c, '*' | '?' | '[' | '\\');
    if !pattern.contains(has_meaning) {
        return Ok(pattern == name);
    }
    if let Some(end) = pattern.strip_prefix('*').filter(|end| !end.contains(has_meaning)) {
        return Ok(name.strip_suffix(end).is_some_and(|start| !start.contains('/')));
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    match_from(&pattern, &name)
}

fn match_from(mut pattern: &[char], mut name: &[char]) -> Result<bool, BadPattern> {
    'pattern: while !pattern.is_empty() {
        let (star, chunk, rest) = next_chunk(pattern);
        pattern = rest;
        if star && chunk.is_empty() {
            return Ok(!name.contains(&'/'));
        }
        let matched = match_chunk(chunk, name)?;
        if let Some(rest_of_name) = matched
            && (rest_of_name.is_empty() || !pattern.is_empty())
        {
            name = rest_of_name;
            continue;
        }
        if star {
            // Try the chunk at each later position of the name that the star can reach.
            let mut skipped = 0;
            while skipped < name.len() && name[skipped] != '/' {
                if let Some(rest_of_name) = match_chunk(chunk, &name[skipped + 1..])?
                    && (!pattern.is_empty() || rest_of_name.is_empty())
                {
                    name = rest_of_name;
                    continue 'pattern;
                }
                skipped += 1;
            }
        }
        // Before failing, check the rest of the pattern for errors.
        while !pattern.is_empty() {
            let (_, chunk, rest) = next_chunk(pattern);
            match_chunk(chunk, &[])?;
            pattern = rest;
        }
        return Ok(false);
    }
    Ok(name.is_empty())
}

/// Splits off leading stars and the text up to the next star outside a class.
fn next_chunk(pattern: &[char]) -> (bool, &[char], &[char]) {
    let stars = pattern.iter().take_while(|c| **c == '*').count();
    let pattern = &pattern[stars..];
    let mut in_class = false;
    let mut i = 0;
    while i < pattern.len() {
        match pattern[i] {
            '\\' if i + 1 < pattern.len() => i += 1,
            '[' => in_class = true,
            ']' => in_class = false,
            '*' if !in_class => break,
            _ => {}
        }
        i += 1;
    }
    (stars > 0, &pattern[..i], &pattern[i..])
}

/// Matches a chunk without stars at the start of the name and returns the rest of the name.
fn match_chunk<'n>(mut chunk: &[char], mut name: &'n [char]) -> Result<Option<&'n [char]>, BadPattern> {
    // After a mismatch the rest of the chunk is still checked for errors.
    let mut failed = false;
    while let Some(first) = chunk.first() {
        if !failed && name.is_empty() {
            failed = true;
        }
        match first {
            '[' => {
                let character = name.first().copied().filter(|_| !failed);
                if !failed {
                    name = &name[1..];
                }
                let (matched, rest) = match_class(&chunk[1..], character)?;
                chunk = rest;
                failed |= !matched;
            }
            '?' => {
                if !failed {
                    failed = name[0] == '/';
                    name = &name[1..];
                }
                chunk = &chunk[1..];
            }
            literal => {
                let (literal, length) = match literal {
                    '\\' => (chunk.get(1).ok_or(BadPattern)?, 2),
                    literal => (literal, 1),
                };
                if !failed {
                    failed = name[0] != *literal;
                    name = &name[1..];
                }
                chunk = &chunk[length..];
            }
        }
    }
    Ok((!failed).then_some(name))
}

/// Matches a character against a class whose `[` has been read; returns the pattern after the `]`.
fn match_class(mut class: &[char], character: Option<char>) -> Result<(bool, &[char]), BadPattern> {
    let negated = class.first() == Some(&'^');
    if negated {
        class = &class[1..];
    }
    let mut matched = false;
    let mut ranges = 0;
    loop {
        if class.first() == Some(&']') && ranges > 0 {
            return Ok((matched != negated, &class[1..]));
        }
        let (low, rest) = class_character(class)?;
        class = rest;
        let mut high = low;
        if class.first() == Some(&'-') {
            (high, class) = class_character(&class[1..])?;
        }
        matched |= character.is_some_and(|c| low <= c && c <= high);
        ranges += 1;
    }
}

fn class_character(class: &[char]) -> Result<(char, &[char]), BadPattern> {
    let (character, rest) = match class {
        [] | ['-' | ']', ..] | ['\\'] => return Err(BadPattern),
        ['\\', character, rest @ ..] | [character, rest @ ..] => (*character, rest),
    };
    // A class that ends here cannot be closed.
    if rest.is_empty() {
        return Err(BadPattern);
    }
    Ok((character, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of Go's own table (`path/filepath/match_test.go`).
    #[test]
    fn the_table_of_go_holds() {
        let rows: &[(&str, &str, Result<bool, BadPattern>)] = &[
            ("abc", "abc", Ok(true)),
            ("*", "abc", Ok(true)),
            ("*c", "abc", Ok(true)),
            ("a*", "a", Ok(true)),
            ("a*", "abc", Ok(true)),
            ("a*", "ab/c", Ok(false)),
            ("a*/b", "abc/b", Ok(true)),
            ("a*/b", "a/c/b", Ok(false)),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", Ok(true)),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/f", Ok(true)),
            ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", Ok(false)),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", Ok(false)),
            ("a*b?c*x", "abxbbxdbxebxczzx", Ok(true)),
            ("a*b?c*x", "abxbbxdbxebxczzy", Ok(false)),
            ("ab[c]", "abc", Ok(true)),
            ("ab[b-d]", "abc", Ok(true)),
            ("ab[e-g]", "abc", Ok(false)),
            ("ab[^c]", "abc", Ok(false)),
            ("ab[^b-d]", "abc", Ok(false)),
            ("ab[^e-g]", "abc", Ok(true)),
            ("a\\*b", "a*b", Ok(true)),
            ("a\\*b", "ab", Ok(false)),
            ("a?b", "a☺b", Ok(true)),
            ("a[^a]b", "a☺b", Ok(true)),
            ("a???b", "a☺b", Ok(false)),
            ("a[^a][^a][^a]b", "a☺b", Ok(false)),
            ("[a-ζ]*", "α", Ok(true)),
            ("*[a-ζ]", "A", Ok(false)),
            ("a?b", "a/b", Ok(false)),
            ("a*b", "a/b", Ok(false)),
            ("[\\]a]", "]", Ok(true)),
            ("[\\-]", "-", Ok(true)),
            ("[x\\-]", "x", Ok(true)),
            ("[x\\-]", "-", Ok(true)),
            ("[x\\-]", "z", Ok(false)),
            ("[\\-x]", "x", Ok(true)),
            ("[\\-x]", "-", Ok(true)),
            ("[\\-x]", "a", Ok(false)),
            ("[]a]", "]", Err(BadPattern)),
            ("[-]", "-", Err(BadPattern)),
            ("[x-]", "x", Err(BadPattern)),
            ("[x-]", "-", Err(BadPattern)),
            ("[x-]", "z", Err(BadPattern)),
            ("[-x]", "x", Err(BadPattern)),
            ("[-x]", "a", Err(BadPattern)),
            ("\\", "a", Err(BadPattern)),
            ("[a-b-c]", "a", Err(BadPattern)),
            ("[", "a", Err(BadPattern)),
            ("[^", "a", Err(BadPattern)),
            ("[^bc", "a", Err(BadPattern)),
            ("a[", "a", Err(BadPattern)),
            ("a[", "ab", Err(BadPattern)),
            ("a[", "x", Err(BadPattern)),
            ("a/b[", "x", Err(BadPattern)),
            ("*x", "xxx", Ok(true)),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(matches(pattern, name), *expected, "{pattern:?} against {name:?}");
        }
    }
}

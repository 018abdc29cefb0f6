//! Go's `path`: slash-separated paths, without accessing files. `path/filepath` behaves the same on Linux, except for
//! `Dir`.

/// `path.Clean`: the shortest equivalent path; `.` if nothing is left.
pub fn clean(path: &[u8]) -> Vec<u8> {
    let rooted = path.first() == Some(&b'/');
    let mut kept: Vec<&[u8]> = Vec::new();
    for element in path.split(|byte| *byte == b'/') {
        match element {
            b"" | b"." => {}
            b".." => match kept.last() {
                Some(&last) if last != b".." => {
                    kept.pop();
                }
                _ if rooted => {}
                _ => kept.push(element),
            },
            _ => kept.push(element),
        }
    }
    let mut cleaned = if rooted { b"/".to_vec() } else { Vec::new() };
    cleaned.extend(kept.join(&b'/'));
    if cleaned.is_empty() {
        b".".to_vec()
    } else {
        cleaned
    }
}

/// `path.Base`: the last element, without trailing slashes; `.` for an empty path, `/` for slashes only.
pub fn base(path: &[u8]) -> &[u8] {
    if path.is_empty() {
        return b".";
    }
    let end = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |last| last + 1);
    let trimmed = &path[..end];
    if trimmed.is_empty() {
        return b"/";
    }
    trimmed.rsplit(|byte| *byte == b'/').next().unwrap_or(trimmed)
}

/// `path.Dir`: everything before the last slash, cleaned.
pub fn dir(path: &[u8]) -> Vec<u8> {
    let end = path
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    clean(&path[..end])
}

/// `path.Ext`: the last element from its last dot, or nothing.
pub fn ext(path: &[u8]) -> &[u8] {
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    last.iter()
        .rposition(|byte| *byte == b'.')
        .map_or(b"", |dot| &last[dot..])
}

/// `path.IsAbs`: starts with a slash.
pub fn is_abs(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart_as_go_does() {
        for (path, cleaned, last, parent, extension) in [
            ("", ".", ".", ".", ""),
            ("/", "/", "/", "/", ""),
            ("///", "/", "/", "/", ""),
            ("a", "a", "a", ".", ""),
            ("a/", "a", "a", "a", ""),
            ("/a/b.tar.gz", "/a/b.tar.gz", "b.tar.gz", "/a", ".gz"),
            ("a//b/../c", "a/c", "c", "a", ""),
            ("../../a", "../../a", "a", "../..", ""),
            ("/../a", "/a", "a", "/", ""),
            ("a.b/c", "a.b/c", "c", "a.b", ""),
            ("a/..", ".", "..", "a", "."),
            (".hidden", ".hidden", ".hidden", ".", ".hidden"),
        ] {
            let bytes = path.as_bytes();
            assert_eq!(
                (clean(bytes), base(bytes), dir(bytes), ext(bytes)),
                (
                    cleaned.into(),
                    last.as_bytes(),
                    parent.into(),
                    extension.as_bytes()
                ),
                "{path}"
            );
        }
    }
}

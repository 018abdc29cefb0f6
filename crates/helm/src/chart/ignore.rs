//! `.helmignore`: the files of a chart folder that are not part of the chart (Helm's `pkg/ignore/rules.go`).

use crate::path_match;

/// The name of the file, at the root of a chart folder.
pub const FILE_NAME: &str = ".helmignore";

/// The rules of one `.helmignore` and Helm's implicit rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    scope: Scope,
    negated: bool,
    only_folders: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The pattern contains a slash: it is matched against the whole path.
    Path,
    /// It contains none: it is matched against the last part of the path, at any depth.
    Base,
}

/// Why a `.helmignore` was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A rule contains `**`.
    #[error("double-star (**) syntax is not supported")]
    DoubleStar,
    /// A rule is not a pattern of Go's `filepath.Match`.
    #[error(transparent)]
    BadPattern(#[from] path_match::BadPattern),
}

impl Rules {
    /// Only Helm's implicit rule: hidden files directly below `templates/` are not templates.
    pub fn implicit() -> Self {
        let mut rules = Self::default();
        // The pattern is known to be sound.
        let _ = rules.add("templates/.?*");
        rules
    }

    /// Parses a `.helmignore` and appends the implicit rule.
    ///
    /// # Errors
    /// On the first invalid rule.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut rules = Self::default();
        for line in text.strip_prefix('\u{feff}').unwrap_or(text).lines() {
            rules.add(line)?;
        }
        rules.add("templates/.?*")?;
        Ok(rules)
    }

    fn add(&mut self, line: &str) -> Result<(), Error> {
        let rule = line.trim();
        if rule.is_empty() || rule.starts_with('#') {
            return Ok(());
        }
        if rule.contains("**") {
            return Err(Error::DoubleStar);
        }
        path_match::matches(rule, "abc")?;

        let (negated, rule) = strip(rule, |rule| rule.strip_prefix('!'));
        let (only_folders, rule) = strip(rule, |rule| rule.strip_suffix('/'));
        let (is_rooted, rule) = strip(rule, |rule| rule.strip_prefix('/'));
        let scope = if is_rooted || rule.contains('/') {
            Scope::Path
        } else {
            Scope::Base
        };
        self.patterns.push(Pattern {
            text: rule.to_owned(),
            scope,
            negated,
            only_folders,
        });
        Ok(())
    }

    /// Whether the file or folder at this path, relative to the chart and without a leading slash, is ignored.
    ///
    /// The first rule that applies decides. A negated rule ignores everything it does *not* match, so a single one
    /// drops nearly the whole chart: unlike in gitignore it is not an exception to earlier rules.
    pub fn ignores(&self, path: &str, is_folder: bool) -> bool {
        if path.is_empty() || path == "." || path == "./" {
            return false;
        }
        for pattern in &self.patterns {
            let applies = !pattern.only_folders || is_folder;
            if pattern.negated {
                if !applies || !pattern.matches(path) {
                    return true;
                }
            } else if applies && pattern.matches(path) {
                return true;
            }
        }
        false
    }

    /// Whether a file is ignored, itself or through a folder above it.
    pub fn ignores_file(&self, path: &str) -> bool {
        let mut folders = path
            .char_indices()
            .filter(|(_, c)| *c == '/')
            .map(|(end, _)| &path[..end]);
        folders.any(|folder| self.ignores(folder, true)) || self.ignores(path, false)
    }
}

fn strip(rule: &str, cut: impl Fn(&str) -> Option<&str>) -> (bool, &str) {
    match cut(rule) {
        Some(rest) => (true, rest),
        None => (false, rule),
    }
}

impl Pattern {
    fn matches(&self, path: &str) -> bool {
        let subject = match self.scope {
            Scope::Path => path,
            Scope::Base => path.rsplit('/').next().unwrap_or(path),
        };
        path_match::matches(&self.text, subject).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of Helm's `rules_test.go`; a path with a trailing slash is a folder.
    #[test]
    fn the_table_of_helm_holds() {
        let rows = [
            ("helm.txt", "helm.txt", true),
            ("helm.*", "helm.txt", true),
            ("helm.*", "rudder.txt", false),
            ("*.txt", "tiller.txt", true),
            ("*.txt", "cargo/a.txt", true),
            ("cargo/*.txt", "cargo/a.txt", true),
            ("cargo/*.*", "cargo/a.txt", true),
            ("cargo/*.txt", "mast/a.txt", false),
            ("ru[c-e]?er.txt", "rudder.txt", true),
            ("templates/.?*", "templates/.dotfile", true),
            ("cargo/", "cargo/", true),
            ("cargo", "cargo/", true),
            ("cargo/", "mast/", false),
            ("helm.txt/", "helm.txt", false),
            ("!helm.txt", "helm.txt", false),
            ("!helm.txt", "tiller.txt", true),
            ("!*.txt", "cargo/", true),
            ("!cargo/", "mast/", true),
            ("/a.txt", "a.txt", true),
            ("/a.txt", "cargo/a.txt", false),
            ("/cargo/a.txt", "cargo/a.txt", true),
            ("*.txt\n!*.txt", "a.txt", true),
            ("a[b-d].txt", "ab.txt", true),
        ];
        for (rules, path, expected) in rows {
            let folder = path.ends_with('/');
            let parsed = Rules::parse(rules).unwrap();
            assert_eq!(
                parsed.ignores(path.trim_end_matches('/'), folder),
                expected,
                "{rules:?} on {path}"
            );
        }
    }

    #[test]
    fn a_folder_that_is_left_out_takes_its_files_with_it() {
        let rules = Rules::parse("# comment\n\n  ci/  \nd/*\n").unwrap();
        assert!(rules.ignores_file("ci/values.yaml"));
        assert!(rules.ignores_file("a/ci/values.yaml"));
        assert!(rules.ignores_file("d/e/f.txt"));
        assert!(!rules.ignores_file("x/d/e"));
        assert!(rules.ignores_file("templates/.hidden"));
        assert!(!rules.ignores_file("templates/sub/.hidden"));
    }

    #[test]
    fn what_helm_cannot_use_is_refused() {
        assert_eq!(Rules::parse("**/foo"), Err(Error::DoubleStar));
        assert_eq!(Rules::parse("a["), Err(Error::BadPattern(path_match::BadPattern)));
    }
}

//! The patterns of `.Files.Glob` (github.com/gobwas/glob 0.2.3 with `/` as separator).
//!
//! `*` and `?` stop at `/`, `**` does not; `[abc]`, `[a-z]` and `[!…]` match one character, `{a,b}` matches either
//! pattern, `\` escapes the next character. The time of matching is proportional to pattern times text for every
//! pattern.

/// A compiled pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    program: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Character(char),
    /// One character other than the separator.
    Single,
    Class(Class),
    /// Any number of characters, including separators if allowed.
    Star {
        crosses: bool,
    },
    /// Continue at either position.
    Split(usize, usize),
    Jump(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Class {
    negated: bool,
    members: Members,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Members {
    List(Vec<char>),
    Range(char, char),
}

impl Class {
    fn contains(&self, c: char) -> bool {
        let is_member = match &self.members {
            Members::List(list) => list.contains(&c),
            Members::Range(low, high) => (*low..=*high).contains(&c),
        };
        is_member != self.negated
    }
}

/// A class is empty or not closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl Glob {
    pub(super) fn new(pattern: &str) -> Result<Self, Malformed> {
        let mut compiler = Compiler {
            pattern: pattern.chars().collect(),
            position: 0,
            program: Vec::new(),
        };
        compiler.alternatives(0)?;
        Ok(Self {
            program: compiler.program,
        })
    }

    /// Matches everything: Helm's fallback for a malformed pattern.
    pub(super) fn everything() -> Self {
        Self {
            program: vec![Step::Star { crosses: true }],
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let mut states = vec![false; self.program.len() + 1];
        self.enter(0, &mut states);
        for c in text.chars() {
            let mut next = vec![false; states.len()];
            for (at, step) in self.program.iter().enumerate().filter(|(at, _)| states[*at]) {
                match step {
                    Step::Character(wanted) if *wanted == c => self.enter(at + 1, &mut next),
                    Step::Single if c != '/' => self.enter(at + 1, &mut next),
                    Step::Class(class) if class.contains(c) => self.enter(at + 1, &mut next),
                    Step::Star { crosses } if *crosses || c != '/' => self.enter(at, &mut next),
                    _ => {}
                }
            }
            states = next;
        }
        states[self.program.len()]
    }

    /// Marks a state and all states reachable from it without reading a character.
    fn enter(&self, state: usize, states: &mut [bool]) {
        let mut waiting = vec![state];
        while let Some(state) = waiting.pop() {
            if std::mem::replace(&mut states[state], true) {
                continue;
            }
            match self.program.get(state) {
                Some(Step::Split(one, other)) => waiting.extend([*one, *other]),
                Some(Step::Jump(to)) => waiting.push(*to),
                Some(Step::Star { .. }) => waiting.push(state + 1),
                Some(Step::Character(_) | Step::Single | Step::Class(_)) | None => {}
            }
        }
    }
}

struct Compiler {
    pattern: Vec<char>,
    position: usize,
    program: Vec<Step>,
}

/// Maximum nesting of braces; Go would overflow its stack only much later.
const MAX_DEPTH: usize = 250;

impl Compiler {
    fn read(&mut self) -> Option<char> {
        let next = self.pattern.get(self.position).copied();
        self.position += usize::from(next.is_some());
        next
    }

    fn peek(&self) -> Option<char> {
        self.pattern.get(self.position).copied()
    }

    /// Compiles patterns up to the closing brace, or the single pattern outside of braces up to the end.
    ///
    /// A brace that is never closed ends with the pattern, as in gobwas.
    fn alternatives(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed);
        }
        let mut ends = Vec::new();
        loop {
            let split = self.program.len();
            if depth > 0 {
                self.program.push(Step::Split(split + 1, split + 1));
            }
            let has_more = self.sequence(depth)?;
            if !has_more {
                break;
            }
            ends.push(self.program.len());
            self.program.push(Step::Jump(0));
            self.program[split] = Step::Split(split + 1, self.program.len());
        }
        let end = self.program.len();
        for jump in ends {
            self.program[jump] = Step::Jump(end);
        }
        Ok(())
    }

    /// Compiles one alternative; returns whether another one follows.
    fn sequence(&mut self, depth: usize) -> Result<bool, Malformed> {
        while let Some(c) = self.read() {
            let step = match c {
                '{' => {
                    self.alternatives(depth + 1)?;
                    continue;
                }
                ',' if depth > 0 => return Ok(true),
                '}' if depth > 0 => return Ok(false),
                '[' => Step::Class(self.class()?),
                '?' => Step::Single,
                '*' => {
                    let crosses = self.peek() == Some('*');
                    self.position += usize::from(crosses);
                    Step::Star { crosses }
                }
                '\\' => match self.read() {
                    Some(escaped) => Step::Character(escaped),
                    None => continue,
                },
                c => Step::Character(c),
            };
            self.program.push(step);
        }
        Ok(false)
    }

    /// Compiles a class whose opening bracket has been read.
    fn class(&mut self) -> Result<Class, Malformed> {
        let negated = self.peek() == Some('!');
        self.position += usize::from(negated);
        let first = self.read().ok_or(Malformed)?;
        if self.peek() == Some('-') {
            self.position += 1;
            let last = self.read().ok_or(Malformed)?;
            if self.read() != Some(']') || last < first {
                return Err(Malformed);
            }
            return Ok(Class {
                negated,
                members: Members::Range(first, last),
            });
        }
        self.position -= 1;
        let mut list = Vec::new();
        loop {
            match self.read().ok_or(Malformed)? {
                ']' => break,
                '\\' => list.push(self.read().ok_or(Malformed)?),
                c => list.push(c),
            }
        }
        if list.is_empty() {
            return Err(Malformed);
        }
        Ok(Class {
            negated,
            members: Members::List(list),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_gobwas() {
        for (expected, pattern, text) in [
            (true, "* ?at * eyes", "my cat has very bright eyes"),
            (true, "", ""),
            (false, "", "b"),
            (true, "*ä", "åä"),
            (true, "a*c", "a12345c"),
            (true, "a/*", "a/b"),
            (true, "a/**", "a/b/c"),
            (false, "a/*", "a/b/c"),
            (true, "a/?/c", "a/b/c"),
            (false, "a/?/c", "a/bb/c"),
            (false, "*", "a/b"),
            (true, "**", "a/b"),
            (true, "\\*", "*"),
            (false, "?at", "at"),
            (true, "[!a]*", "this is a test3"),
            (true, "?*?", "ac"),
            (true, "{abc,def}ghi", "defghi"),
            (true, "{abc,abcd}a", "abcda"),
            (true, "{a,ab}{bc,f}", "abc"),
            (true, "{*,**}{a,b}", "ab"),
            (false, "{*,**}{a,b}", "ac"),
            (true, "/{rate,[a-z][a-z][a-z]}*", "/usd"),
            (true, "{*/google/*,yandex/*}", "www/google/com"),
            (true, "{*/google/*,yandex/*}", "yandex/com"),
            (false, "{*/google/*,yandex/*}", "www/yandex/com"),
            (true, "**.txt", "f/sub/x.txt"),
            (true, "**/*.txt", "f/a.txt"),
            (false, "**/*.txt", "a.txt"),
            (true, "config/{a,b}.{yaml,json}", "config/b.json"),
            (true, "{a,{b,c}d}e", "cde"),
            (false, "{a,{b,c}d}e", "ce"),
            (true, "{,a}b", "b"),
            (true, "[abc-z]", "-"),
            (false, "[abc-z]", "x"),
            (true, "a}b,c", "a}b,c"),
            (true, "[!/]", "x"),
            (true, "a\\", "a"),
        ] {
            assert_eq!(
                Glob::new(pattern).unwrap().matches(text),
                expected,
                "{pattern:?} on {text:?}"
            );
        }
    }

    #[test]
    fn malformed_classes_are_refused() {
        for pattern in ["[", "[]", "[a", "[!]", "[z-a]", "[a-", "[a-zx]"] {
            assert_eq!(Glob::new(pattern), Err(Malformed), "{pattern}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_few() {
        let glob = Glob::new(&"*a".repeat(100)).unwrap();
        assert!(!glob.matches(&"a".repeat(99)));
        assert!(glob.matches(&"a".repeat(100)));
    }
}

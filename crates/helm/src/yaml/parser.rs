//! Parses tokens into events (go-yaml's `parserc.go`).

use std::borrow::Cow;

use super::{
    Problem,
    scanner::{Kind, Scanner, Token},
};

#[derive(Debug)]
pub(super) struct Event<'a> {
    pub(super) what: What<'a>,
    /// Counted from 0.
    pub(super) line: usize,
}

#[derive(Debug)]
pub(super) enum What<'a> {
    StreamStart,
    StreamEnd,
    DocumentStart,
    DocumentEnd,
    Alias(&'a str),
    Scalar(Scalar<'a>),
    SequenceStart { anchor: Option<&'a str> },
    SequenceEnd,
    MappingStart { anchor: Option<&'a str> },
    MappingEnd,
}

#[derive(Debug)]
pub(super) struct Scalar<'a> {
    pub(super) anchor: Option<&'a str>,
    pub(super) tag: Option<Box<str>>,
    pub(super) value: Cow<'a, str>,
    /// Whether its text determines its type.
    pub(super) implicit: bool,
}

struct Tag<'a> {
    handle: &'a str,
    suffix: Cow<'a, str>,
    line: usize,
}

/// What the parser expects next.
#[derive(Clone, Copy, Debug)]
enum State {
    StreamStart,
    ImplicitDocumentStart,
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockSequenceFirstEntry,
    BlockSequenceEntry,
    IndentlessSequenceEntry,
    BlockMappingFirstKey,
    BlockMappingKey,
    BlockMappingValue,
    FlowSequenceFirstEntry,
    FlowSequenceEntry,
    FlowSequenceEntryMappingKey,
    FlowSequenceEntryMappingValue,
    FlowSequenceEntryMappingEnd,
    FlowMappingFirstKey,
    FlowMappingKey,
    FlowMappingValue,
    FlowMappingEmptyValue,
    End,
}

pub(super) struct Parser<'a> {
    scanner: Scanner<'a>,
    state: State,
    states: Vec<State>,
    tag_directives: Vec<(&'a str, Cow<'a, str>)>,
}

type Parsed<'a> = Result<Event<'a>, Problem>;

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            scanner: Scanner::new(text),
            state: State::StreamStart,
            states: Vec::with_capacity(16),
            tag_directives: Vec::new(),
        }
    }

    /// How far the text has been read.
    pub(super) fn position(&self) -> usize {
        self.scanner.position()
    }

    /// The next event. After the end of the stream, its end again.
    pub(super) fn next(&mut self) -> Parsed<'a> {
        match self.state {
            State::StreamStart => self.stream_start(),
            State::ImplicitDocumentStart => self.document_start(true),
            State::DocumentStart => self.document_start(false),
            State::DocumentContent => self.document_content(),
            State::DocumentEnd => self.document_end(),
            State::BlockNode => self.node(true, false),
            State::BlockSequenceFirstEntry => self.block_sequence_entry(true),
            State::BlockSequenceEntry => self.block_sequence_entry(false),
            State::IndentlessSequenceEntry => self.indentless_sequence_entry(),
            State::BlockMappingFirstKey => self.block_mapping_key(true),
            State::BlockMappingKey => self.block_mapping_key(false),
            State::BlockMappingValue => self.block_mapping_value(),
            State::FlowSequenceFirstEntry => self.flow_sequence_entry(true),
            State::FlowSequenceEntry => self.flow_sequence_entry(false),
            State::FlowSequenceEntryMappingKey => self.flow_sequence_entry_mapping_key(),
            State::FlowSequenceEntryMappingValue => self.flow_sequence_entry_mapping_value(),
            State::FlowSequenceEntryMappingEnd => self.flow_sequence_entry_mapping_end(),
            State::FlowMappingFirstKey => self.flow_mapping_key(true),
            State::FlowMappingKey => self.flow_mapping_key(false),
            State::FlowMappingValue => self.flow_mapping_value(false),
            State::FlowMappingEmptyValue => self.flow_mapping_value(true),
            State::End => Ok(Event {
                what: What::StreamEnd,
                line: 0,
            }),
        }
    }

    fn peek(&mut self) -> Result<&Token<'a>, Problem> {
        self.scanner.peek()
    }

    fn take(&mut self) {
        self.scanner.take();
    }

    /// Takes the peeked token if it is of the wanted kind.
    fn take_if(&mut self, wanted: fn(&Kind<'a>) -> bool) -> Result<bool, Problem> {
        let fits = wanted(&self.peek()?.kind);
        if fits {
            self.take();
        }
        Ok(fits)
    }

    fn fail<T>(&mut self, problem: &'static str) -> Result<T, Problem> {
        Err(Problem::parser(self.peek()?.line, problem))
    }

    fn pop_state(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
    }

    fn stream_start(&mut self) -> Parsed<'a> {
        let line = self.peek()?.line;
        self.take();
        self.state = State::ImplicitDocumentStart;
        Ok(Event {
            what: What::StreamStart,
            line,
        })
    }

    fn document_start(&mut self, implicit: bool) -> Parsed<'a> {
        if !implicit {
            while self.take_if(|kind| matches!(kind, Kind::DocumentEnd))? {}
        }
        let Token { kind, line } = self.peek()?;
        let line = *line;
        match kind {
            Kind::StreamEnd => {
                self.state = State::End;
                return Ok(Event {
                    what: What::StreamEnd,
                    line,
                });
            }
            Kind::VersionDirective { .. } | Kind::TagDirective { .. } | Kind::DocumentStart => {
                self.explicit_document()?;
            }
            _ if implicit => {
                self.process_directives()?;
                self.state = State::BlockNode;
            }
            _ => self.explicit_document()?,
        }
        self.states.push(State::DocumentEnd);
        Ok(Event {
            what: What::DocumentStart,
            line,
        })
    }

    fn explicit_document(&mut self) -> Result<(), Problem> {
        self.process_directives()?;
        if !self.take_if(|kind| matches!(kind, Kind::DocumentStart))? {
            return self.fail("did not find expected <document start>");
        }
        self.state = State::DocumentContent;
        Ok(())
    }

    fn document_content(&mut self) -> Parsed<'a> {
        let Token { kind, line } = self.peek()?;
        match kind {
            Kind::VersionDirective { .. }
            | Kind::TagDirective { .. }
            | Kind::DocumentStart
            | Kind::DocumentEnd
            | Kind::StreamEnd => {
                let line = *line;
                self.pop_state();
                Ok(empty_scalar(line))
            }
            _ => self.node(true, false),
        }
    }

    fn document_end(&mut self) -> Parsed<'a> {
        let line = self.peek()?.line;
        self.take_if(|kind| matches!(kind, Kind::DocumentEnd))?;
        self.tag_directives.clear();
        self.state = State::DocumentStart;
        Ok(Event {
            what: What::DocumentEnd,
            line,
        })
    }

    fn node(&mut self, block: bool, indentless_sequence: bool) -> Parsed<'a> {
        let line = self.peek()?.line;
        if let Kind::Alias(name) = self.peek()?.kind {
            self.take();
            self.pop_state();
            return Ok(Event {
                what: What::Alias(name),
                line,
            });
        }
        let (anchor, tag) = self.properties()?;
        let what = match self.peek()?.kind {
            Kind::BlockEntry if indentless_sequence => {
                self.state = State::IndentlessSequenceEntry;
                What::SequenceStart { anchor }
            }
            Kind::Scalar { .. } => {
                let Some(Token {
                    kind: Kind::Scalar { value, plain },
                    ..
                }) = self.scanner.take()
                else {
                    return self.fail("did not find expected node content");
                };
                self.pop_state();
                let implicit = tag.as_deref().map_or(plain, |tag| tag == "!");
                What::Scalar(Scalar {
                    anchor,
                    tag,
                    value,
                    implicit,
                })
            }
            Kind::FlowSequenceStart => {
                self.state = State::FlowSequenceFirstEntry;
                What::SequenceStart { anchor }
            }
            Kind::FlowMappingStart => {
                self.state = State::FlowMappingFirstKey;
                What::MappingStart { anchor }
            }
            Kind::BlockSequenceStart if block => {
                self.state = State::BlockSequenceFirstEntry;
                What::SequenceStart { anchor }
            }
            Kind::BlockMappingStart if block => {
                self.state = State::BlockMappingFirstKey;
                What::MappingStart { anchor }
            }
            _ if anchor.is_some() || tag.is_some() => {
                self.pop_state();
                let implicit = tag.is_none();
                What::Scalar(Scalar {
                    anchor,
                    tag,
                    value: Cow::Borrowed(""),
                    implicit,
                })
            }
            _ => return self.fail("did not find expected node content"),
        };
        Ok(Event { what, line })
    }

    /// Anchor and tag of a node, in either order.
    fn properties(&mut self) -> Result<(Option<&'a str>, Option<Box<str>>), Problem> {
        let mut anchor = self.anchor()?;
        let tag = self.tag()?;
        if tag.is_some() && anchor.is_none() {
            anchor = self.anchor()?;
        }
        // The token after them is read before the tag is checked.
        self.peek()?;
        Ok((anchor, tag.map(|tag| self.resolve_tag(tag)).transpose()?))
    }

    fn anchor(&mut self) -> Result<Option<&'a str>, Problem> {
        let Kind::Anchor(name) = self.peek()?.kind else {
            return Ok(None);
        };
        self.take();
        Ok(Some(name))
    }

    fn tag(&mut self) -> Result<Option<Tag<'a>>, Problem> {
        let Token {
            kind: Kind::Tag { .. },
            line,
        } = self.peek()?
        else {
            return Ok(None);
        };
        let line = *line;
        let Some(Token {
            kind: Kind::Tag { handle, suffix },
            ..
        }) = self.scanner.take()
        else {
            return Ok(None);
        };
        Ok(Some(Tag { handle, suffix, line }))
    }

    fn resolve_tag(&self, Tag { handle, suffix, line }: Tag<'a>) -> Result<Box<str>, Problem> {
        if handle.is_empty() {
            return Ok(suffix.into());
        }
        match self.tag_directives.iter().find(|(known, _)| *known == handle) {
            Some((_, prefix)) => Ok(format!("{prefix}{suffix}").into()),
            None => Err(Problem::parser(line, "found undefined tag handle")),
        }
    }

    fn block_sequence_entry(&mut self, first: bool) -> Parsed<'a> {
        if first {
            self.peek()?;
            self.take();
        }
        let line = self.peek()?.line;
        if self.take_if(|kind| matches!(kind, Kind::BlockEntry))? {
            return match self.peek()?.kind {
                Kind::BlockEntry | Kind::BlockEnd => {
                    self.state = State::BlockSequenceEntry;
                    Ok(empty_scalar(line))
                }
                _ => {
                    self.states.push(State::BlockSequenceEntry);
                    self.node(true, false)
                }
            };
        }
        if self.take_if(|kind| matches!(kind, Kind::BlockEnd))? {
            self.pop_state();
            return Ok(Event {
                what: What::SequenceEnd,
                line,
            });
        }
        self.fail("did not find expected '-' indicator")
    }

    fn indentless_sequence_entry(&mut self) -> Parsed<'a> {
        let line = self.peek()?.line;
        if !self.take_if(|kind| matches!(kind, Kind::BlockEntry))? {
            self.pop_state();
            return Ok(Event {
                what: What::SequenceEnd,
                line,
            });
        }
        match self.peek()?.kind {
            Kind::BlockEntry | Kind::Key | Kind::Value | Kind::BlockEnd => {
                self.state = State::IndentlessSequenceEntry;
                Ok(empty_scalar(line))
            }
            _ => {
                self.states.push(State::IndentlessSequenceEntry);
                self.node(true, false)
            }
        }
    }

    fn block_mapping_key(&mut self, first: bool) -> Parsed<'a> {
        if first {
            self.peek()?;
            self.take();
        }
        let line = self.peek()?.line;
        if self.take_if(|kind| matches!(kind, Kind::Key))? {
            return match self.peek()?.kind {
                Kind::Key | Kind::Value | Kind::BlockEnd => {
                    self.state = State::BlockMappingValue;
                    Ok(empty_scalar(line))
                }
                _ => {
                    self.states.push(State::BlockMappingValue);
                    self.node(true, true)
                }
            };
        }
        if self.take_if(|kind| matches!(kind, Kind::BlockEnd))? {
            self.pop_state();
            return Ok(Event {
                what: What::MappingEnd,
                line,
            });
        }
        self.fail("did not find expected key")
    }

    fn block_mapping_value(&mut self) -> Parsed<'a> {
        let line = self.peek()?.line;
        if self.take_if(|kind| matches!(kind, Kind::Value))?
            && !matches!(self.peek()?.kind, Kind::Key | Kind::Value | Kind::BlockEnd)
        {
            self.states.push(State::BlockMappingKey);
            return self.node(true, true);
        }
        self.state = State::BlockMappingKey;
        Ok(empty_scalar(line))
    }

    fn flow_sequence_entry(&mut self, first: bool) -> Parsed<'a> {
        if first {
            self.peek()?;
            self.take();
        }
        if !first
            && !matches!(self.peek()?.kind, Kind::FlowSequenceEnd)
            && !self.take_if(|kind| matches!(kind, Kind::FlowEntry))?
        {
            return self.fail("did not find expected ',' or ']'");
        }
        let Token { kind, line } = self.peek()?;
        let line = *line;
        match kind {
            Kind::Key => {
                self.state = State::FlowSequenceEntryMappingKey;
                self.take();
                Ok(Event {
                    what: What::MappingStart { anchor: None },
                    line,
                })
            }
            Kind::FlowSequenceEnd => {
                self.pop_state();
                self.take();
                Ok(Event {
                    what: What::SequenceEnd,
                    line,
                })
            }
            _ => {
                self.states.push(State::FlowSequenceEntry);
                self.node(false, false)
            }
        }
    }

    fn flow_sequence_entry_mapping_key(&mut self) -> Parsed<'a> {
        let Token { kind, line } = self.peek()?;
        if matches!(kind, Kind::Value | Kind::FlowEntry | Kind::FlowSequenceEnd) {
            let line = *line;
            // go-yaml consumes the token, so `[? ]` and `[? : x]` do not parse.
            self.take();
            self.state = State::FlowSequenceEntryMappingValue;
            return Ok(empty_scalar(line));
        }
        self.states.push(State::FlowSequenceEntryMappingValue);
        self.node(false, false)
    }

    fn flow_sequence_entry_mapping_value(&mut self) -> Parsed<'a> {
        let line = self.peek()?.line;
        if self.take_if(|kind| matches!(kind, Kind::Value))?
            && !matches!(self.peek()?.kind, Kind::FlowEntry | Kind::FlowSequenceEnd)
        {
            self.states.push(State::FlowSequenceEntryMappingEnd);
            return self.node(false, false);
        }
        self.state = State::FlowSequenceEntryMappingEnd;
        Ok(empty_scalar(line))
    }

    fn flow_sequence_entry_mapping_end(&mut self) -> Parsed<'a> {
        let line = self.peek()?.line;
        self.state = State::FlowSequenceEntry;
        Ok(Event {
            what: What::MappingEnd,
            line,
        })
    }

    fn flow_mapping_key(&mut self, first: bool) -> Parsed<'a> {
        if first {
            self.peek()?;
            self.take();
        }
        if !first
            && !matches!(self.peek()?.kind, Kind::FlowMappingEnd)
            && !self.take_if(|kind| matches!(kind, Kind::FlowEntry))?
        {
            return self.fail("did not find expected ',' or '}'");
        }
        if self.take_if(|kind| matches!(kind, Kind::Key))? {
            let Token { kind, line } = self.peek()?;
            if matches!(kind, Kind::Value | Kind::FlowEntry | Kind::FlowMappingEnd) {
                let line = *line;
                self.state = State::FlowMappingValue;
                return Ok(empty_scalar(line));
            }
            self.states.push(State::FlowMappingValue);
            return self.node(false, false);
        }
        let line = self.peek()?.line;
        if self.take_if(|kind| matches!(kind, Kind::FlowMappingEnd))? {
            self.pop_state();
            return Ok(Event {
                what: What::MappingEnd,
                line,
            });
        }
        self.states.push(State::FlowMappingEmptyValue);
        self.node(false, false)
    }

    fn flow_mapping_value(&mut self, empty: bool) -> Parsed<'a> {
        let mut line = self.peek()?.line;
        if !empty && self.take_if(|kind| matches!(kind, Kind::Value))? {
            let next = self.peek()?;
            if !matches!(next.kind, Kind::FlowEntry | Kind::FlowMappingEnd) {
                self.states.push(State::FlowMappingKey);
                return self.node(false, false);
            }
            line = next.line;
        }
        self.state = State::FlowMappingKey;
        Ok(empty_scalar(line))
    }

    fn process_directives(&mut self) -> Result<(), Problem> {
        let mut versioned = false;
        loop {
            let Token { kind, line } = self.peek()?;
            let line = *line;
            match kind {
                Kind::VersionDirective { .. } if versioned => {
                    return Err(Problem::parser(line, "found duplicate %YAML directive"));
                }
                Kind::VersionDirective { major: 1, minor: 1 } => versioned = true,
                Kind::VersionDirective { .. } => {
                    return Err(Problem::parser(line, "found incompatible YAML document"));
                }
                Kind::TagDirective { handle, prefix } => {
                    let (handle, prefix) = (*handle, prefix.clone());
                    if self.tag_directives.iter().any(|(known, _)| *known == handle) {
                        return Err(Problem::parser(line, "found duplicate %TAG directive"));
                    }
                    self.tag_directives.push((handle, prefix));
                }
                _ => break,
            }
            self.take();
        }
        for (handle, prefix) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            if !self.tag_directives.iter().any(|(known, _)| *known == handle) {
                self.tag_directives.push((handle, Cow::Borrowed(prefix)));
            }
        }
        Ok(())
    }
}

fn empty_scalar<'a>(line: usize) -> Event<'a> {
    let scalar = Scalar {
        anchor: None,
        tag: None,
        value: Cow::Borrowed(""),
        implicit: true,
    };
    Event {
        what: What::Scalar(scalar),
        line,
    }
}

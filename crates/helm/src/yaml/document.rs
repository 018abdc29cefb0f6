//! Builds nodes from events (the first half of go-yaml's `decode.go`).

use std::{borrow::Cow, collections::HashMap};

use super::{
    MAX_DEPTH, Problem,
    parser::{Event, Parser, Scalar, What},
};

/// One document: its nodes in the order of the text, each followed by its children.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub(super) nodes: Vec<Node<'a>>,
}

#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) kind: Kind<'a>,
    /// Counted from 0.
    pub(super) line: u32,
    /// Index of the next sibling.
    pub(super) end: usize,
}

#[derive(Debug)]
pub(super) enum Kind<'a> {
    Scalar {
        value: Cow<'a, str>,
        tag: Option<Box<str>>,
        implicit: bool,
    },
    Sequence,
    Mapping,
    Alias {
        name: &'a str,
        target: usize,
    },
}

impl Node<'_> {
    /// Whether it is the `<<` of a merge.
    pub(super) fn is_merge(&self) -> bool {
        match &self.kind {
            Kind::Scalar { value, tag, implicit } => {
                value == "<<" && (*implicit || tag.as_deref() == Some("tag:yaml.org,2002:merge"))
            }
            Kind::Sequence | Kind::Mapping | Kind::Alias { .. } => false,
        }
    }
}

/// Reads the documents of a stream one by one, and no further than requested.
pub(super) struct Reader<'a> {
    parser: Parser<'a>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            parser: Parser::new(text),
        }
    }

    /// How far the text has been read.
    pub(super) fn position(&self) -> usize {
        self.parser.position()
    }

    /// The next document, none at the end of the stream.
    pub(super) fn next(&mut self) -> Result<Option<Document<'a>>, Problem> {
        loop {
            match self.parser.next()?.what {
                What::StreamEnd => return Ok(None),
                What::DocumentStart => return self.document().map(Some),
                _ => {}
            }
        }
    }

    fn document(&mut self) -> Result<Document<'a>, Problem> {
        let mut nodes: Vec<Node<'a>> = Vec::with_capacity(64);
        let mut anchors: HashMap<&'a str, usize> = HashMap::new();
        let mut open: Vec<usize> = Vec::with_capacity(16);
        loop {
            let Event { what, line } = self.parser.next()?;
            let at = nodes.len();
            let (kind, anchor) = match what {
                What::Scalar(Scalar {
                    anchor,
                    tag,
                    value,
                    implicit,
                }) => (Kind::Scalar { value, tag, implicit }, anchor),
                What::SequenceStart { anchor } => (Kind::Sequence, anchor),
                What::MappingStart { anchor } => (Kind::Mapping, anchor),
                What::Alias(name) => match anchors.get(name) {
                    Some(&target) => (Kind::Alias { name, target }, None),
                    None => return Err(Problem::plain(format!("unknown anchor '{name}' referenced"))),
                },
                What::SequenceEnd | What::MappingEnd => {
                    if let Some(opened) = open.pop() {
                        nodes[opened].end = at;
                    }
                    continue;
                }
                What::DocumentEnd | What::StreamStart | What::StreamEnd | What::DocumentStart => {
                    return Ok(Document { nodes });
                }
            };
            if let Some(anchor) = anchor {
                anchors.insert(anchor, at);
            }
            if matches!(kind, Kind::Sequence | Kind::Mapping) {
                open.push(at);
                if open.len() > MAX_DEPTH {
                    return Err(Problem::plain(format!("exceeded max depth of {MAX_DEPTH}")));
                }
            }
            nodes.push(Node {
                kind,
                line: line as u32,
                end: at + 1,
            });
        }
    }
}

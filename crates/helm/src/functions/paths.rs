//! Paths: Go's `path`, and `path/filepath`, which behaves the same on Linux.

use gotemplate::string::Str;

use gostd::path;

pub(super) fn base(text: Str) -> Str {
    path::base(&text).into()
}

pub(super) fn dir(text: Str) -> Str {
    path::dir(&text).into()
}

pub(super) fn clean(text: Str) -> Str {
    path::clean(&text).into()
}

pub(super) fn ext(text: Str) -> Str {
    path::ext(&text).into()
}

pub(super) fn is_abs(text: Str) -> bool {
    path::is_abs(&text)
}

//! Semantic versions: sprig's `semver.go`, and Masterminds' `Version` as templates see it.

use std::any::Any;
use std::cmp::Ordering;
use std::sync::LazyLock;

use gotemplate::function::{Arguments, Concrete, Error, Function, Functions, Parameter, Receiver, Returned};
use gotemplate::string::Str;
use gotemplate::types::Type;
use gotemplate::value::{Object, Value};

use crate::semver::{self, Version};

static POINTER: Type = Type::pointer("*semver.Version").with_methods(&POINTER_METHODS);
static PLAIN: Type = Type::structure("semver.Version").with_methods(&PLAIN_METHODS);

/// Returned by `semver`: a pointer to a version.
#[derive(Clone, Debug)]
struct Pointer(Version);

/// Returned by `IncMajor` and similar methods: a version value, which has fewer methods in Go.
#[derive(Clone, Debug)]
struct Plain(Version);

impl Object for Pointer {
    fn ty(&self) -> &'static Type {
        &POINTER
    }

    fn text(&self) -> Option<String> {
        Some(self.0.to_string())
    }

    fn json(&self) -> Value {
        self.0.to_string().into()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Object for Plain {
    fn ty(&self) -> &'static Type {
        &PLAIN
    }

    fn text(&self) -> Option<String> {
        Some(self.0.to_string())
    }

    fn json(&self) -> Value {
        self.0.to_string().into()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Parameter for Pointer {
    fn go_type() -> &'static Type {
        &POINTER
    }

    fn take(arguments: &mut Arguments<'_>) -> Result<Self, Error> {
        let value = arguments.take().unwrap_or_default();
        value.as_object::<Self>().cloned().ok_or_else(|| {
            Error::new(format!(
                "wrong type for value; expected *semver.Version; got {}",
                value.type_name()
            ))
        })
    }
}

impl Returned for Pointer {
    fn into_result(self) -> Result<Value, Error> {
        Ok(Value::object(self))
    }
}

impl Returned for Plain {
    fn into_result(self) -> Result<Value, Error> {
        Ok(Value::object(self))
    }
}

fn receiver(this: &Receiver) -> Result<&Version, Error> {
    this.object::<Pointer>()
        .map(|version| &version.0)
        .or_else(|_| this.object::<Plain>().map(|version| &version.0))
}

fn plain(version: Result<Version, semver::Error>) -> Result<Plain, Error> {
    version.map(Plain).map_err(Error::from_error)
}

static PLAIN_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("Major", |this: Receiver| {
        receiver(&this).map(|version| Concrete(Value::Uint64(version.major)))
    });
    methods.add("Minor", |this: Receiver| {
        receiver(&this).map(|version| Concrete(Value::Uint64(version.minor)))
    });
    methods.add("Patch", |this: Receiver| {
        receiver(&this).map(|version| Concrete(Value::Uint64(version.patch)))
    });
    methods.add("Prerelease", |this: Receiver| {
        receiver(&this).map(|version| version.prerelease.clone())
    });
    methods.add("Metadata", |this: Receiver| {
        receiver(&this).map(|version| version.metadata.clone())
    });
    methods.add("String", |this: Receiver| receiver(&this).map(Version::to_string));
    methods.add("IncMajor", |this: Receiver| {
        plain(receiver(&this)?.increment_major())
    });
    methods.add("IncMinor", |this: Receiver| {
        plain(receiver(&this)?.increment_minor())
    });
    methods.add("IncPatch", |this: Receiver| {
        plain(receiver(&this)?.increment_patch())
    });
    methods.add("SetPrerelease", |this: Receiver, text: String| {
        plain(receiver(&this)?.with_prerelease(&text))
    });
    methods.add("SetMetadata", |this: Receiver, text: String| {
        plain(receiver(&this)?.with_metadata(&text))
    });
    methods
});

static POINTER_METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = PLAIN_METHODS.clone();
    methods.add("Original", |this: Receiver| {
        receiver(&this).map(|version| version.original().to_owned())
    });
    methods.add("Compare", |this: Receiver, other: Pointer| {
        receiver(&this).map(|version| version.cmp(&other.0) as i64)
    });
    methods.add_function("LessThan", compares(Ordering::is_lt));
    methods.add_function("LessThanEqual", compares(Ordering::is_le));
    methods.add_function("GreaterThan", compares(Ordering::is_gt));
    methods.add_function("GreaterThanEqual", compares(Ordering::is_ge));
    methods.add_function("Equal", compares(Ordering::is_eq));
    methods
});

fn compares(holds: fn(Ordering) -> bool) -> Function {
    Function::new(move |this: Receiver, other: Pointer| {
        receiver(&this).map(|version| holds(version.cmp(&other.0)))
    })
}

pub(super) fn parse(version: Str) -> Result<Concrete, Error> {
    let version = Version::parse(&version.lossy()).map_err(Error::from_error)?;
    Ok(Concrete(Value::object(Pointer(version))))
}

/// Whether a version satisfies a constraint.
pub(super) fn compare(constraint: Str, version: Str) -> Result<bool, Error> {
    semver::satisfies(&constraint.lossy(), &version.lossy()).map_err(Error::from_error)
}

//! Converts objects between versions by the changes that charts list, for types that need it.
//!
//! The path that the API server calls contains the type and the digest of its changes. A replica compares the digest
//! with the one it remembers, and reads the type once if they differ. So it needs no watch, and two replicas never
//! answer by different changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::COMPOSITION_GROUP;
use cluster::{Cluster, ObjectId};
use crdgen::CustomResourceDefinition;
use crdgen::conversion::{self, CONVERSION, Conversion};
use kube::ResourceExt as _;

/// The changes of a type cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not read the changes of type {plural}")]
    Read { plural: String, source: cluster::Error },
    #[error("type {plural} lists no changes between its versions")]
    None { plural: String },
    #[error("type {plural} cannot be converted")]
    Conversion {
        plural: String,
        source: conversion::Error,
    },
}

/// URL path of the webhook that converts objects of a type by these changes.
pub(crate) fn path(plural: &str, changes: &str) -> String {
    format!("/convert/{plural}/{}", digest(changes))
}

fn digest(changes: &str) -> String {
    helm::digest::fnv1_64_hex(changes.as_bytes())
}

/// A cache of the changes of types that were asked for.
pub(crate) struct Conversions {
    cluster: Cluster,
    cache: Mutex<HashMap<String, CachedConversion>>,
}

/// The changes of a type as last read.
#[derive(Clone)]
struct CachedConversion {
    digest: String,
    conversion: Arc<Conversion>,
}

impl Conversions {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            cache: Mutex::default(),
        }
    }

    /// The changes of a type with this digest. If the type has newer changes, returns those, which also cover all
    /// earlier versions.
    pub(super) async fn of(&self, plural: &str, digest: &str) -> Result<Arc<Conversion>, Error> {
        let cached = self.cache().get(plural).cloned();
        if let Some(cached) = cached.filter(|cached| cached.digest == digest) {
            return Ok(cached.conversion);
        }
        self.now(plural).await?.ok_or_else(|| Error::None {
            plural: plural.to_owned(),
        })
    }

    /// The current changes of a type; `None` when it has none.
    pub(super) async fn now(&self, plural: &str) -> Result<Option<Arc<Conversion>>, Error> {
        let read = |source| Error::Read {
            plural: plural.to_owned(),
            source,
        };
        let name = format!("{plural}.{COMPOSITION_GROUP}");
        let id = ObjectId::of::<CustomResourceDefinition>(None, &name).map_err(read)?;
        let type_ = self.cluster.get_metadata(&id).await.map_err(read)?;
        let text = type_.and_then(|type_| type_.annotations().get(CONVERSION).cloned());
        let Some(text) = text else { return Ok(None) };
        let conversion = Conversion::read(&name, &text).map_err(|source| Error::Conversion {
            plural: plural.to_owned(),
            source,
        })?;
        let cached = CachedConversion {
            digest: digest(&text),
            conversion: Arc::new(conversion),
        };
        self.cache().insert(plural.to_owned(), cached.clone());
        Ok(Some(cached.conversion))
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, HashMap<String, CachedConversion>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

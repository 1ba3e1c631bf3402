//! Keys of the caches of files and directories.

use selvedge::cache::Equivalent;
use std::hash::{Hash, Hasher};

/// A namespace and a path in it.
#[derive(PartialEq, Eq)]
pub(super) struct CacheKey {
    pub(super) namespace: CacheNamespace,
    pub(super) path: Box<[u8]>,
}

/// A borrowed key for look-ups.
#[derive(Clone, Copy)]
pub(super) struct CacheKeyRef<'a> {
    pub(super) namespace: CacheNamespace,
    pub(super) path: &'a [u8],
}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, stamp: &mut H) {
        CacheKeyRef { namespace: self.namespace, path: &self.path }.hash(stamp);
    }
}

impl Hash for CacheKeyRef<'_> {
    fn hash<H: Hasher>(&self, stamp: &mut H) {
        stamp.write_u32(self.namespace.0);
        stamp.write(self.path);
    }
}

impl Equivalent<CacheKey> for CacheKeyRef<'_> {
    fn equivalent(&self, key: &CacheKey) -> bool {
        self.namespace == key.namespace && *self.path == *key.path
    }
}

/// Separates the paths of document roots and sites, because one path can be another file in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::site) struct CacheNamespace(pub(super) u32);

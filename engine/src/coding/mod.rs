//! Content codings of responses: which responses are encoded, with which fields, and how.
//!
//! A response passes through the modules in this order: `policy` decides whether it is encoded, and `etags` gives it
//! its own ETag. `encoded_files` stores encoded files, and `ongoing` encodes other content while it is sent, with an
//! `encoder`. `coder` is all of that for responses of any type, `response` for those of the engine.

mod coder;
pub(crate) mod encoded_files;
pub(crate) mod encoder;
mod etags;
mod fields;
pub(crate) mod ongoing;
pub(crate) mod policy;
mod response;

pub use coder::ContentCoder;
pub(crate) use coder::{CodedContent, ResponseFacts};
pub use encoded_files::EncodedFile;
pub(crate) use fields::{FieldLookup, FieldMap};
pub use policy::Authenticated;

/// Why content failed.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

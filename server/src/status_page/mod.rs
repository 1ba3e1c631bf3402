//! The live page of the server: what it shows, as HTML and as the data of its events. The page is documented in
//! `docs/metrics.md`; the events are for it only.
//!
//! Nothing here runs on a worker: the status is that of `selvedge status`, and the requests are read from the flight
//! recorder.

mod facts;
mod maker;
mod page;
mod requests;
mod tables;
mod view;

pub(crate) use facts::{CertificateExpiry, LiveFacts, PageFacts};
pub(crate) use maker::PageMaker;

//! The messages of the service. They correspond to these lines of a `.proto` file, from which `tonic-prost-build` can
//! generate this file and the dispatch of `service`:
//!
//! ```proto
//! package station;
//! service Station {
//!     rpc Latest(Sensor) returns (Reading);
//!     rpc Watch(Sensor) returns (stream Reading);
//!     rpc Record(stream Reading) returns (Summary);
//!     rpc Convert(stream Reading) returns (stream Reading);
//! }
//! message Sensor { string name = 1; }
//! message Reading { string sensor = 1; double degrees = 2; bytes note = 3; }
//! message Summary { uint64 readings = 1; uint64 note_bytes = 2; }
//! ```

use prost::Message;

/// A sensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sensor {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

/// A temperature.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Reading {
    #[prost(string, tag = "1")]
    pub(crate) sensor: String,
    /// Fahrenheit in replies of `Convert`.
    #[prost(double, tag = "2")]
    pub(crate) degrees: f64,
    /// Any bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) note: bytes::Bytes,
}

/// What was recorded.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Summary {
    #[prost(uint64, tag = "1")]
    pub(crate) readings: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) note_bytes: u64,
}

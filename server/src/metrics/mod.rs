//! Metrics in OpenMetrics and in the text format of Prometheus. The names are documented in `docs/metrics.md` and stay
//! stable; labels are texts of the configuration and of the program only.
//!
//! Nothing here runs on a worker: the counters of workers are read, and connections are counted as for `selvedge status`.

mod data;
mod endpoint;
mod families;
mod text;

pub(crate) use data::{MetricsData, ProcessFacts};
pub(crate) use endpoint::{MetricsEndpoint, MetricsServer};

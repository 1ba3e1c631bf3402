//! Tests of the parser with case rows and generated requests.

mod cases;
mod differential;
// Marked, so that clippy treats their helpers as tests.
#[cfg(test)]
mod http2;
#[cfg(test)]
mod responses;

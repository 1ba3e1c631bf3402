//! Tests of the parser with case rows and generated requests.

mod cases;
mod differential;
mod responses;
// Marked, so that clippy treats its helpers as tests.
#[cfg(test)]
mod http2;

//! Tests of the parser with case rows and generated requests.

mod cases;
mod differential;
// Marked, so that clippy treats its helpers as tests.
#[cfg(test)]
mod http2;

//! Tests of the parser with case rows and generated requests.

mod cases;
mod differential;
mod http2;

//! Tests of HTTP/2 connections.

mod attacks;
mod pair;
mod random;
mod rows;
mod script;

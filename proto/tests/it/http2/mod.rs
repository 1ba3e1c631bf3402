//! Tests of HTTP/2 connections.

mod attacks;
mod other_implementation;
mod pair;
mod random;
mod rows;
mod script;

//! Tests of HTTP/2 connections.

mod attacks;
mod rows;
mod script;

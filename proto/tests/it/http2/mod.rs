//! Tests of HTTP/2 connections.

mod rows;
mod script;

//! HTTP/2 connections: many requests at once, windows, and an end in two steps.

mod client;

mod bounds;
mod ending;
mod hand_over;
mod requests;
mod responses;
mod slow_clients;
mod tunnels;

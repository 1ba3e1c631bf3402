//! Tests of forwarded requests against servers in this process.

mod balance;
mod failures;
mod messages;
mod streams;
mod support;

use super::*;
use support::*;
